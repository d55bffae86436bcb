//! Logs of many forms.

use super::*;
use crate::logs::analyze::headline::headline;
use crate::logs::analyze::log::LogProblem;

#[test]
fn any_header_with_a_time_and_an_amount_is_read_as_are_the_numbers_of_numpy() {
    for header in [
        "time,bytes",
        "t,bytes",
        "elapsed_s,mem",
        "Time (s),Memory (bytes)",
        "\"seconds\",\"used_bytes\"",
    ] {
        let found = check(
            &format!("{header}\n0,1.048576e+06\n1.000e+00,2097152.0\n"),
            &["- - - 0:1 1:2"],
        );
        assert_eq!(
            found.unreadable.count, 0,
            "{header}: {:?}",
            found.unreadable.first
        );
    }
    for text in [
        "Time (s),Memory (MiB)\n0,1\n1,2\n",
        "elapsed_ms,MiB\n0,1\n1000,2\n",
        "time [min],memory_gb\n0,0.001048576\n0.0166666667,0.002097152\n",
        "hours,used_mib\n0,1\n0.000277777778,2\n",
        "timestamp_ms,MiB\n1795266342123,1\n1795266343123,2\n",
        "time_ns;MiB\n0;1\n1000000000;2\n",
        "elapsed (s),memory used by the whole job (MiB)\n0,1\n1,2\n",
        "time since the whole job began [s],MiB\n0,1\n1,2\n",
        "t\tbytes\n0:00:00\t1048576\n0:00:01\t2097152\n",
        "What was held, and when it was held there\n0,1048576\n1,2097152\n",
        "Zeit;used MiB\n01.01.1970 00:00:00;1,0\n01.01.1970 00:00:01;2,0\n",
    ] {
        check(text, &["- - - 0:1 1:2"]);
    }
    check("0,1.048576e+06\n1,2.097152e+06\n", &["- - - 0:1 1:2"]);
}

#[test]
fn steps_are_steps() {
    let rows = (0..200).map(|step| format!("{},3.5,{}\n", step * 10, (1000 + step) << 20));
    let text = format!("step,loss,memory_allocated\n{}", rows.collect::<String>());
    let found = read(&text);
    assert_eq!(
        found.series[0].times.steps.map(|steps| steps.word),
        Some("step")
    );
    let sentence = headline(&found.series[0]);
    assert!(
        sentence.starts_with("LEAKED from step ")
            && sentence.contains(" to step 1,990, +102 KiB/step, ended at "),
        "{sentence}"
    );
    let json = to_json(&[(Text::new("log"), found)]);
    let series = &json["series"][0];
    assert_eq!(
        (
            &series["time_unit"],
            &series["span_steps"],
            &series["span_seconds"]
        ),
        (&"step".into(), &1990.0.into(), &serde_json::Value::Null)
    );
    assert_eq!(series["episodes"][0]["to"], 1990.0);
}

/// Nobody knows how long a step lasts: growth matters that fills the memory in some times the log.
#[test]
fn a_leak_over_steps_may_need_many_times_the_log() {
    let rows = (0..200_u64).map(|step| format!("{},{}\n", step * 10, (5000 + 20 * step) << 20));
    let text = format!(
        "step,memory_allocated,memory_total\n{}",
        rows.map(|row| row.replace('\n', ",85899345920\n"))
            .collect::<String>()
    );
    let sentence = headline(&read(&text).series[0]);
    assert!(sentence.starts_with("LEAKED from step "), "{sentence}");
}

#[test]
fn a_unit_that_nothing_tells_is_a_doubt_with_the_option_that_settles_it() {
    let log = |factor: f64, header: &str| {
        let rows = (0..50).map(|at| format!("{at},{}\n", f64::from(20_000 + at) * factor));
        read(&format!("{header}\n{}", rows.collect::<String>()))
    };
    let doubts = |factor: f64, header: &str| log(factor, header).doubts.join(" ");
    assert!(doubts(1.0, "time,memory_used").ends_with("if it is MiB, add `--unit MiB`"));
    assert!(doubts(1.0 / 1024.0, "time,memory_used").ends_with("if it is GiB, add `--unit GiB`"));
    assert!(doubts(1024.0, "time,memory_used").ends_with("if it is KiB, add `--unit KiB`"));
    assert_eq!(doubts(1_048_576.0, "time,memory_used"), "");
    // An amount that no GPU has is doubted whatever the header says.
    assert!(doubts(1_048_576.0, "time,memory.used").ends_with("add `--unit bytes`"));
    // Tensors and processes may hold little.
    assert_eq!(doubts(1.0, "time,memory_allocated"), "");
    let small = "time,total [MiB],used [MiB]\n0,80,20\n1,80,21\n";
    let problem = read(small).problem;
    let sentence = problem
        .as_ref()
        .map(LogProblem::sentence)
        .unwrap_or_default();
    assert!(
        sentence.contains("would have 80.0 MiB, which no GPU has")
            && sentence.ends_with("`--unit GiB`"),
        "{sentence}"
    );
}

#[test]
fn columns_are_found_by_name_in_any_order() {
    let header = "timestamp, index, memory.used [MiB], memory.total [MiB]";
    let row = "2026/11/21 13:05:42.000, 0, 100 MiB, 8192 MiB\n2026/11/21 13:05:43.500, 0, 120 MiB, 8192 MiB";
    check(&format!("{header}\n{row}\n"), &["0 - 8192 0:100 1.5:120"]);
    check(
        "memory.total [MiB], utilization.gpu [%], memory.used [MiB], timestamp\n\
         8192, 7, 100, 2026/11/21 13:05:42.000\n8192, 8, 120, 2026/11/21 13:05:44.000\n",
        &["- - 8192 0:100 2:120"],
    );
    check(
        "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n\
         2026/11/21 13:05:42.000, GPU-1, 7, python a,b.py, 100 MiB\n\
         2026/11/21 13:05:42.000, GPU-1, 8, python, [N/A]\n\
         2026/11/21 13:05:43.000, GPU-1, 7, python a,b.py, 110 MiB\n",
        &["GPU-1 7 - 0:100 1:110"],
    );
}

#[test]
fn all_rows_have_the_separator_of_the_header() {
    check("time,bytes\n0,\t1048576\n1,\t2097152\n", &["- - - 0:1 1:2"]);
    check(
        "time,pid,name,used_memory [MiB]\n0,7,a;b,1\n1,7,a\tb,2\n",
        &["- 7 - 0:1 1:2"],
    );
    check(
        "time\tname\tpid\tMiB\n0\ta,b\t7\t1\n1\ta\t7\t2\n",
        &["- 7 - 0:1 1:2"],
    );
    // Decimal commas, with and without a header.
    check(
        "time (s);memory (MiB)\n0,5;1,5 MiB\n1,75;2,5\n2;3\n",
        &["- - - 0:1 1.25:2 1.5:3"],
    );
    check(
        "a remark, and one more\n0,5;1048576,5\n1,5;2097152\n",
        &["- - - 0:1 1:2"],
    );
}

#[test]
fn columns_without_a_header_are_guessed() {
    let time = |second: u32| format!("2026/11/21 13:05:{second:02}.000");
    let rows = |row: &dyn Fn(u32) -> String| (0..20).map(row).collect::<Vec<_>>().join("\n");
    let expected = |head: &str, samples: &dyn Fn(u32) -> u32| {
        let samples: Vec<String> = (0..20)
            .map(|second| format!("{second}:{}", samples(second)))
            .collect();
        format!("{head} {}", samples.join(" "))
    };
    let grows = |second: u32| 1000 + second;
    let units = rows(&|second| {
        format!(
            "{}, 0, 81559 MiB, {} MiB, 33 %",
            time(second),
            grows(second)
        )
    });
    check(&units, &[&expected("0 - 81559", &grows)]);
    let bare = rows(&|second| format!("{}, {}, 81559, 45", time(second), grows(second)));
    let found = check(&bare, &[&expected("- - 81559", &grows)]);
    assert!(
        found.notes[0].starts_with("no header: column 2 taken for the memory in use"),
        "{:?}",
        found.notes
    );
    let apps = rows(&|second| format!("{}, GPU-5ac8, 4242, {} MiB", time(second), grows(second)));
    check(&apps, &[&expected("GPU-5ac8 4242 -", &grows)]);
    let bare_apps = rows(&|second| format!("{}, GPU-5ac8, 4242, {}", time(second), grows(second)));
    check(&bare_apps, &[&expected("GPU-5ac8 4242 -", &grows)]);
    // The PID may be smaller or larger than the amounts, and its column may be before or after
    // theirs.
    for pid in [300, 2_424_242] {
        for first in [true, false] {
            let row = |second: u32| {
                let (time, memory) = (time(second), grows(second));
                let two = if first {
                    format!("{pid}, {memory}")
                } else {
                    format!("{memory}, {pid}")
                };
                format!(
                    "{time}, GPU-5ac8, {two}\n{time}, GPU-5ac8, {}",
                    two.replace(&pid.to_string(), "77777")
                )
            };
            check(
                &rows(&row),
                &[pid, 77777].map(|pid| expected(&format!("GPU-5ac8 {pid} -"), &grows)),
            );
        }
    }
    let whole_first =
        rows(&|second| format!("{}, GPU-5ac8, 81559, {}", time(second), grows(second)));
    check(&whole_first, &[&expected("GPU-5ac8 - 81559", &grows)]);
    // Indexes and temperatures are not PIDs.
    let warm = rows(&|second| format!("{}, 1, GPU-5ac8, 41, {} MiB", time(second), grows(second)));
    check(&warm, &[&expected("1 - -", &grows)]);
    // Neither are clock rates, which return to earlier values, nor free memory, which differs in
    // each row.
    let clocks = rows(&|second| {
        format!(
            "{}, {}, {}",
            time(second),
            grows(second),
            if second % 3 == 0 { 1965 } else { 1980 }
        )
    });
    assert_eq!(read(&clocks).series.len(), 1);
    let free = (0..60).map(|second| {
        format!(
            "{}, {}, {}",
            time(second),
            grows(second),
            81_559 - grows(second)
        )
    });
    assert_eq!(read(&free.collect::<Vec<_>>().join("\n")).series.len(), 1);
    let plain = rows(&|second| format!("{second}.0,{}", u64::from(grows(second)) << 20));
    check(&plain, &[&expected("- - -", &grows)]);
    check("time,bytes\n5,1048576\n7.5,2097152\n", &["- - - 0:1 2.5:2"]);
}

#[test]
fn times_of_many_formats_are_parsed() {
    for (text, expected) in [
        ("1970/01/01 00:00:00.000", Some(0)),
        ("2026/11/21 13:05:42.123", Some(1_795_266_342_123)),
        ("2026-11-21T13:05:42Z", Some(1_795_266_342_000)),
        ("2026-11-21T13:05:42.5+02:00", Some(1_795_259_142_500)),
        ("2000-02-29 00:00:00", Some(951_782_400_000)),
        ("12.5", Some(12_500)),
        ("1795266342", Some(1_795_266_342_000)),
        ("1795266342123", Some(1_795_266_342_123)),
        ("27:05:42.5", Some(97_542_500)),
        ("9999:00:00", Some(35_996_400_000)),
        ("9223372036854775807:00:00", None),
        ("1:60:00", None),
        ("1:00:1e1", None),
        ("00000000:17:00.0", None),
        ("0000:17:00.0", None),
        ("2026/13/21 13:05:42", None),
        ("inf", None),
        ("", None),
    ] {
        assert_eq!(LogTimes::default().time(text, None), expected, "{text}");
    }
}

#[test]
fn homemade_logs_are_read() {
    let mib = |amount: u64| amount << 20;
    check("time,gpu_mem_GiB\n0,1.5\n1,2.0\n", &["- - - 0:1536 1:2048"]);
    check(
        &format!("0 {}\n1.5   {}.0e0\n", mib(10), mib(20)),
        &["- - - 0:10 1.5:20"],
    );
    let of_nvidia = "2026/11/21 13:05:00.000, 20480\n2026/11/21 13:05:01.000, 20484\n";
    check(of_nvidia, &["- - - 0:20480 1:20484"]);
    let free = "timestamp, index, memory.free [MiB], memory.total [MiB]\n\
        2026/11/21 13:05:00.000, 0, 600 MiB, 1000 MiB\n2026/11/21 13:05:01.000, 0, [N/A], 1000 MiB\n";
    assert_eq!(check(free, &["0 - 1000 0:400"]).missing, 1);
    // The log has more lines of text than rows, and all lines of text have the same number of
    // cells.
    let noise = "starting, wait\nloading, wait\nloaded, done\n";
    let rows = "2026/11/21 13:05:00.000, 0, 10 MiB, 1000 MiB\n2026/11/21 13:05:01.000, 0, 20 MiB, 1000 MiB\n";
    assert_eq!(
        check(&format!("{noise}{rows}"), &["0 - 1000 0:10 1:20"])
            .unreadable
            .count,
        3
    );
}

#[test]
fn gputops_full_lines_and_ticks_are_read() {
    let mut host = host(1).with(7, "python train.py", 0, Bytes(0));
    let mut text = String::new();
    let mut before: Option<Snapshot> = None;
    for second in 0..900 {
        host = host.later(1);
        (host.sequence, host.unix_ms) = (second, 1_700_000_000_000 + second * 1000);
        let [held, reserved, allocated] = leak_below(second).map(Bytes);
        host.gpus[0].processes[0].memory = Ok(held);
        host.gpus[0].load.memory_used = Ok(held);
        host.processes[0].allocator =
            Some(allocator_stats(Some(host.gpus[0].uuid.clone()), reserved, allocated).into());
        let change = before
            .filter(|_| second % 100 != 0)
            .and_then(|before| Change::between(&before, &host));
        let line = change.map_or_else(
            || Line::Full(Box::new(host.clone())),
            |change| Line::Tick(Box::new(change)),
        );
        let mut bytes = Vec::new();
        line.write(&mut bytes).unwrap();
        text += str::from_utf8(&bytes).unwrap();
        before = Some(host.clone());
    }
    let found = read(&text);
    let found_series: Vec<_> = found
        .series
        .iter()
        .map(|judged| {
            (
                judged.series.pid,
                judged.samples,
                judged.last.verdict,
                judged.last.part,
            )
        })
        .collect();
    let expected = [
        (None, 900, LeakVerdict::Steady, None),
        (Some(7), 900, LeakVerdict::Leak, Some(MemoryPart::Allocated)),
    ];
    assert_eq!(found_series, expected, "{:?}", found.unreadable.first);
    // The JSON has all figures of the allocator.
    let series = &to_json(&[(Text::new("log"), found)])["series"][1];
    let mib = |name: &str| series[name].as_i64().map(|bytes| bytes >> 20);
    let names = [
        "reserved",
        "allocated",
        "not_pytorch",
        "active",
        "inactive_split",
        "requested",
    ];
    let allocated = 10_240 + 5 * 899;
    let expected = [30_208, allocated, 512, allocated, 0, allocated].map(Some);
    assert_eq!(
        names.map(|name| mib(&format!("{name}_bytes"))),
        expected,
        "{series}"
    );
    // A tick without a full line, and JSON objects that are not gputop's, are unreadable.
    let tick = text.lines().nth(1).unwrap();
    assert_eq!(
        read(&format!("{tick}\n{{}}\n{{\"kind\":\"later\"}}\n"))
            .unreadable
            .count,
        2
    );
}
