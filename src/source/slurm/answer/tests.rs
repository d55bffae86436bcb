//! Tests with the words of Slurm 22.05.

use proptest::prelude::*;

use super::*;

fn id(text: &str) -> SlurmJobId {
    text.parse().unwrap()
}

/// Returns the answer with these lines, in which `|` separates the fields.
#[track_caller]
fn answer(lines: &[&str]) -> SlurmAnswer {
    let mut answer = SlurmAnswer::default();
    for line in lines {
        let mut fields = line.split('|').map(Text::new);
        let fields = std::array::from_fn(|_| fields.next().unwrap_or_default());
        assert!(!answer.take(fields).unwrap(), "{line}");
    }
    assert!(answer.take(std::array::from_fn(|_| "done".into())).unwrap());
    answer
}

const LLAMA: &[&str] = &[
    "user|alice",
    "job|4242|4242|N/A|alice|RUNNING|1-02:03:04|gpu-[01-02]|None|llama",
    "detail|JobId=4242 JobName=llama",
    "detail|Nodes=gpu-01 CPU_IDs=0-3 Mem=0 GRES=gpu:h100:4(IDX:0-3)",
    "detail|Nodes=gpu-02 CPU_IDs=0-3 Mem=0 GRES=gpu:h100:4(IDX:0,5-7)",
];

const ARRAY: &[&str] = &[
    "user|alice",
    "job|10|10|2-9%2|alice|PENDING|0:00||Resources|sweep",
    "job|12|10|1|alice|RUNNING|2:06|gpu-[07-08]|None|sweep",
];

#[test]
fn a_job_has_its_nodes_with_their_gpus() {
    let job = answer(LLAMA).job(id("4242"), 5).unwrap();
    let nodes: Vec<_> = job
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.gpus.clone()))
        .collect();
    assert_eq!(
        nodes,
        [
            ("gpu-01", Some(vec![0, 1, 2, 3])),
            ("gpu-02", Some(vec![0, 5, 6, 7]))
        ]
    );
    assert_eq!((job.id().as_str(), job.gpus()), ("4242", Some(8)));
    assert_eq!((job.name.as_str(), job.user.as_str()), ("llama", "alice"));
    assert_eq!(job.run_time, Some(Duration::from_secs(93_784)));
    assert_eq!(job.asked_at, 5);
}

#[test]
fn the_only_task_of_an_array_with_nodes_is_the_job_and_has_the_id_of_the_task() {
    let job = answer(ARRAY).job(id("10"), 0).unwrap();
    assert_eq!((job.number, job.id().as_str()), (12, "10_1"));
    assert_eq!(job.gpus(), None, "nobody said which GPUs");
}

#[test]
fn of_several_tasks_the_sentence_names_some() {
    let tasks: Vec<String> = (3..12)
        .map(|task| {
            format!(
                "job|{}|2|{task}|alice|RUNNING|2:06|gpu-01|None|sweep",
                20 - task
            )
        })
        .collect();
    let lines: Vec<&str> = tasks.iter().map(String::as_str).collect();
    assert_eq!(
        answer(&lines).job(id("2"), 0).unwrap_err(),
        "job 2 is an array of which several tasks have nodes: name one, as in 2_3, 2_4, 2_5, 2_6, 2_7, … 4 more"
    );
}

#[test]
fn a_job_without_nodes_is_a_sentence() {
    for (line, sentence) in [
        (
            "job|4|4|N/A|alice|PENDING|0:00||Priority|huge",
            "job 4 waits in the queue (Priority): it has no nodes yet",
        ),
        (
            "job|4|4|N/A|alice|PENDING|0:00||None|huge",
            "job 4 waits in the queue: it has no nodes yet",
        ),
        (
            "job|4|4|N/A|alice|TIMEOUT|9:00|gpu-01|None|huge",
            "job 4 has ended (TIMEOUT): it has no nodes any more",
        ),
        (
            "job|4|4|N/A|alice|RUNNING|9:00|root@gpu-01|None|huge",
            "Slurm names the nodes of job 4 in a way that gputop does not understand: `root@gpu-01` is no name of a node",
        ),
        ("", "there is no job 4, or it ended a while ago"),
    ] {
        assert_eq!(answer(&[line]).job(id("4"), 0).unwrap_err(), sentence);
    }
}

#[test]
fn a_refusal_of_slurm_is_told() {
    for (line, reason) in [
        (
            "refused|slurm_load_jobs error: Invalid job id specified",
            "there is no such job, or it ended a while ago",
        ),
        (
            "refused|slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        ),
        (
            "lacks",
            "there is no squeue; name a login host as in LOGIN:JOB",
        ),
    ] {
        let mut fields = line.split('|').map(Text::new);
        let fields = std::array::from_fn(|_| fields.next().unwrap_or_default());
        assert_eq!(SlurmAnswer::default().take(fields), Err(reason.to_owned()));
    }
}

#[test]
fn only_the_owner_may_cancel_a_job_and_only_on_exactly_its_nodes() {
    let answer = answer(LLAMA);
    let job = answer.job(id("4242"), 0).unwrap();
    let check = |hosts: &[&str]| answer.check_cancel(&job, hosts);
    assert_eq!(check(&["gpu-02", "gpu-01"]), Ok(()));
    assert_eq!(
        check(&["gpu-01"]).unwrap_err(),
        "job 4242 has one more node, which is not among these hosts"
    );
    assert_eq!(
        check(&["gpu-01", "gpu-02", "gpu-03"]).unwrap_err(),
        "gpu-03 is no node of job 4242"
    );
    assert_eq!(
        check(&[]).unwrap_err(),
        "job 4242 has 2 more nodes, which are not among these hosts"
    );
    for user in ["bob", ""] {
        let mut others = self::answer(LLAMA);
        others.user = user.into();
        let why = others
            .check_cancel(&job, &["gpu-01", "gpu-02"])
            .unwrap_err();
        assert_eq!(why, format!("job 4242 belongs to alice, not to {user}"));
    }
}

#[test]
fn gpu_indices_are_read_in_the_forms_of_all_versions() {
    for (line, indices) in [
        (
            "CPU_IDs=0 Mem=0 GRES=gpu:h100:3(IDX:3-5)",
            Some(vec![3, 4, 5]),
        ),
        ("CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0,7)", Some(vec![0, 7])),
        ("CPU_IDs=0 Mem=0 GRES_IDX=gpu(IDX:1)", Some(vec![1])),
        (
            "GRES=gpu:a100:1(IDX:6),gpu:h100:2(IDX:0-1),nic:1(IDX:0)",
            Some(vec![0, 1, 6]),
        ),
        ("CPU_IDs=0 Mem=0 GRES=", Some(vec![])),
        ("CPU_IDs=0 Mem=0", Some(vec![])),
        ("GRES=gpu:h100:4(IDX:N/A)", None),
        ("GRES=gpu:h100:4", None),
        ("GRES=gpu:1g.10gb:2(IDX:0-1)", None),
        ("GRES=gpu:4(IDX:0-4000000000)", None),
        ("GRES=gpu:4(IDX:5-3)", None),
    ] {
        assert_eq!(gpu_indices(line), indices, "{line}");
    }
}

#[test]
fn run_times_are_read() {
    for (text, seconds) in [
        ("0:00", Some(0)),
        ("2:06", Some(126)),
        ("1:02:03", Some(3723)),
        ("5-00:00:01", Some(432_001)),
        ("INVALID", None),
        ("", None),
        ("99999999999999999999:00", None),
        ("18446744073709551615-18446744073709551615:00:00", None),
    ] {
        assert_eq!(
            run_time_of(text),
            seconds.map(Duration::from_secs),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_line_is_an_answer_or_a_sentence(
        kind in "job|detail|user",
        number in "[0-9]{0,3}",
        nodes in "[a-c0-3,@%\\[\\]-]{0,20}",
        text in any::<String>(),
    ) {
        let mut answer = SlurmAnswer::default();
        let detail = Text::new(format!("JobId={number}"));
        let forms = [detail, Text::new(format!("Nodes={nodes} GRES={text}")), Text::new(&text)];
        for form in forms {
            let mut fields: [Text; FIELDS] = std::array::from_fn(|_| form.clone());
            fields[0] = kind.as_str().into();
            fields[7] = nodes.as_str().into();
            let _last = answer.take(fields);
        }
        for node in answer.job(id("4242"), 0).into_iter().flat_map(|job| job.nodes) {
            let name = node.name.as_str();
            prop_assert!(!name.contains(['@', ':', '[', ' ']) && !name.starts_with('-'));
        }
    }
}
