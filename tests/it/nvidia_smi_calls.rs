//! Calls of nvidia-smi as they stand in public scripts, run with a link to gputop that is called
//! `nvidia-smi`.

use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::Command;

use fake_nvml::{Fault, GpuProcess, ProcessKind};

use crate::host::{GIB, Host};
use crate::process::{Output, run};

const MIB: u64 = 1 << 20;

const TITLES: &str = "\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 590.48.01              Driver Version: 590.48.01      CUDA Version: 13.1     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
";

const NO_PROCESSES: &str = "
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
";

/// A host of driver 590 with a link to gputop that is called `nvidia-smi`.
fn host<'a>(personas: impl IntoIterator<Item = &'a str>) -> Host {
    let mut host = Host::new(personas);
    host.change(|world| {
        "590.48.01".clone_into(&mut world.driver);
        world.cuda = 13010;
    });
    symlink(env!("CARGO_BIN_EXE_gputop"), host.path("nvidia-smi")).expect("/tmp has room");
    host
}

/// Runs a line of a shell script, in which `nvidia-smi` is gputop.
fn shell(host: &Host, line: &str) -> Output {
    let path = format!(
        "{}:{}",
        host.path("").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut shell = Command::new("bash");
    run(host
        .set_environment(shell.args(["-c", line]))
        .env("PATH", path)
        .current_dir(host.path("")))
}

/// The table without the line of its date.
fn table(host: &Host, line: &str) -> String {
    let output = shell(host, line);
    let text = output.text();
    let (date, table) = text.split_once('\n').unwrap_or_default();
    assert!(
        output.code == 0 && date.ends_with("       ") && date.len() == 31,
        "{}{text}",
        output.stderr
    );
    table.to_owned()
}

/// Starts `python`, which computes on the first GPU, and `Xorg`, which draws on the second. Returns
/// their PIDs.
fn start_processes(host: &mut Host) -> [u32; 2] {
    let python = host
        .start(0, 3 * GIB, Command::new("sleep").arg0("python").arg("1000"))
        .pid();
    let xorg = host
        .start(
            1,
            0,
            Command::new("sleep").arg0("/usr/lib/xorg/Xorg").arg("1000"),
        )
        .pid();
    host.change(|world| {
        let computing = &mut world.gpus[0].processes[0];
        (computing.sm, computing.mem, computing.enc) = (Some(42), 7, 99);
        let drawing = GpuProcess {
            kinds: vec![ProcessKind::Graphics],
            ..GpuProcess::new(xorg, 176 * MIB)
        };
        world.gpus[1].processes = vec![drawing];
    });
    [python, xorg]
}

#[test]
fn calls_of_public_scripts_get_the_answer_of_nvidia_smi() {
    let mut host = host(["H100", "RTX-4090"]);
    let [python, xorg] = start_processes(&mut host);
    let calls = include_str!("../data/nvidia-smi-calls.txt");
    let calls = calls
        .replace("{python}", &python.to_string())
        .replace("{xorg}", &xorg.to_string());
    let calls: Vec<&str> = calls.split("\n$ ").skip(1).collect();
    assert!(calls.len() >= 60, "{}", calls.len());
    let mut wrong = Vec::new();
    for call in calls {
        let (line, expected) = call.split_once('\n').unwrap_or((call, ""));
        let output = shell(&host, line);
        let text = output
            .text()
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect::<Vec<_>>()
            .concat();
        let code = if output.code == 0 {
            String::new()
        } else {
            format!("[{}]\n", output.code)
        };
        if format!("{text}{code}").trim_end() != expected.trim_end() {
            wrong.push(format!(
                "$ {line}\n{text}{code}{}instead of\n{expected}",
                output.stderr
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_table_has_the_lines_and_widths_of_nvidia_smi() {
    let mut host = host(["H100", "RTX-4090"]);
    let [python, xorg] = start_processes(&mut host);
    let expected = format!(
        "{TITLES}\
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |
| N/A   59C    P0            588W /  700W |    3072MiB /  81559MiB |     97%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX 4090        Off |   00000000:2B:00.0  On |                  N/A |
| 38%   61C    P2            331W /  450W |     176MiB /  24564MiB |     76%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A{python:>16}      C   python                                 3072MiB |
|    1   N/A  N/A{xorg:>16}      G   /usr/lib/xorg/Xorg                      176MiB |
+-----------------------------------------------------------------------------------------+
"
    );
    assert_eq!(table(&host, "nvidia-smi"), expected);
}

#[test]
fn what_a_gpu_does_not_report_is_not_available_in_the_table() {
    let gpus = "\
|   0  NVIDIA GB10                    On  |   00000000:1B:00.0 Off |                  N/A |
| N/A   58C    P0             41W /  N/A  |      Not Supported     |     64%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A40-24Q                 On  |   00000000:2B:00.0 Off |                  N/A |
| N/A   N/A    P0             N/A /  N/A  |       0MiB /  24576MiB |     31%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   2  NVIDIA RTX PRO 6000 Blac...    Off |   00000000:3B:00.0  On |                  Off |
|100%   61C    P2            331W /  450W |       0MiB /  24564MiB |     76%   E. Process |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
";
    let mut host = host(["GB10", "VGPU", "RTX-4090"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlSystemGetCudaDriverVersion_v2", "UNKNOWN"));
        let gpu = &mut world.gpus[2];
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition".clone_into(&mut gpu.name);
        (gpu.fans, gpu.compute_mode, gpu.ecc) =
            (vec![100], Some(3), Some(fake_nvml::Ecc::default()));
    });
    let titles = TITLES.replace("CUDA Version: 13.1", "CUDA Version: N/A ");
    assert_eq!(
        table(&host, "nvidia-smi"),
        format!("{titles}{gpus}{NO_PROCESSES}")
    );
}

#[test]
fn a_process_without_memory_and_one_with_a_long_name_have_their_lines() {
    let mut host = host(["WSL"]);
    let name = "/home/someone/miniforge3/envs/train/bin/python";
    let pid = host
        .start(0, 0, Command::new("sleep").arg0(name).arg("1000"))
        .pid();
    let line = format!(
        "|    0   N/A  N/A{pid:>16}      C   ...iforge3/envs/train/bin/python      N/A      |"
    );
    let text = table(&host, "nvidia-smi");
    assert!(text.lines().any(|other| other == line), "{text}");
}

#[test]
fn the_instances_of_a_split_gpu_are_below_it() {
    let mut host = host(["A100-MIG"]);
    let process = host
        .start(0, 0, Command::new("sleep").arg0("./train").arg("1000"))
        .pid();
    host.change(|world| {
        let gpu = &mut world.gpus[0];
        gpu.processes.clear();
        let instances = &mut gpu.mig.as_mut().expect("the GPU is split").instances;
        instances[1].processes = vec![GpuProcess::new(process, 100 * MIB)];
    });
    let expected = format!(
        "{TITLES}\
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:1B:00.0 Off |                   On |
| N/A   52C    P0            312W /  400W |     100MiB /  40960MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  0    2   0   0  |               0MiB / 19968MiB    |N/A    N/A |N/A N/A  N/A  N/A  N/A |
|                  |                N/A /      N/A    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  0    7   0   1  |             100MiB /  4864MiB    |N/A    N/A |N/A N/A  N/A  N/A  N/A |
|                  |                N/A /      N/A    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  0    8   0   2  |               0MiB /  4864MiB    |N/A    N/A |N/A N/A  N/A  N/A  N/A |
|                  |                N/A /      N/A    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0    7    0 {process:>16}      C   ./train                                 100MiB |
+-----------------------------------------------------------------------------------------+
"
    );
    assert_eq!(table(&host, "nvidia-smi"), expected);
}

#[test]
fn the_process_monitor_prints_a_line_for_each_process() {
    let mut host = host(["H100", "RTX-4090", "A100"]);
    let [python, xorg] = start_processes(&mut host);
    let sample = format!(
        "    0{python:>11}     C     42      7     99      -      -      -    sleep          
    1{xorg:>11}     G      -      -      -      -      -      -    sleep          
    2          -     -      -      -      -      -      -      -    -              \n"
    );
    let expected = format!(
        "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command \n\
         # Idx           #    C/G      %      %      %      %      %      %    name \n{sample}{sample}"
    );
    let output = shell(&host, "nvidia-smi pmon -c 2");
    assert_eq!(
        (output.code, output.text()),
        (0, expected),
        "{}",
        output.stderr
    );
    let expected = format!(
        "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command \n\
         # Idx           #    C/G      %      %      %      %      %      %     MB     MB    name \n    \
         0{python:>11}     C     42      7     99      -      -      -   3072      0    sleep          \n"
    );
    let output = shell(&host, "nvidia-smi pmon -c 1 -s um -i 0");
    assert_eq!(
        (output.code, output.text()),
        (0, expected),
        "{}",
        output.stderr
    );
    let output = shell(&host, "nvidia-smi pmon -c 1 -s m -o DT -i 2");
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "#Date       Time        gpu         pid   type     fb   ccpm    command "
    );
    assert_eq!(
        lines[1],
        "#YYYYMMDD   HH:MM:SS    Idx           #    C/G     MB     MB    name "
    );
    assert!(
        lines[2].ends_with("      2          -     -      -      -    -              "),
        "{text}"
    );
    assert_eq!(
        lines[2].find(':').zip(lines[1].find(':')),
        Some((14, 14)),
        "{text}"
    );
}

/// The exit codes of nvidia-smi's manual, and the sentences of nvidia-smi in public logs.
#[test]
fn a_driver_in_trouble_ends_nvidia_smi_with_its_code_and_sentence() {
    const NO_DRIVER: &str = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that \
        the latest NVIDIA driver is installed and running.\n\n";
    const NO_LIBRARY: &str = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the \
        NVIDIA Display Driver is properly installed and present in your system.\nPlease also try adding directory that \
        contains libnvidia-ml.so to your system PATH.\n";
    let check = |host: &Host, environment: &str, code: i32, sentence: &str| {
        for call in [
            "nvidia-smi",
            "nvidia-smi -l 1",
            "nvidia-smi -L",
            "nvidia-smi --version",
            "nvidia-smi pmon -c 1",
            "nvidia-smi --query-gpu=name --format=csv",
            "nvidia-smi --query-compute-apps=pid --format=csv,noheader -lms 200",
        ] {
            let output = shell(host, &format!("{environment} {call}"));
            assert_eq!(
                (output.code, output.text().as_str()),
                (code, sentence),
                "{call}: {}",
                output.stderr
            );
        }
    };
    let mut host = host(["H100"]);
    check(
        &host,
        "GPUTOP_NVML_LIB=/nowhere/libnvidia-ml.so.1",
        12,
        NO_LIBRARY,
    );
    for (error, code, sentence) in [
        ("DRIVER_NOT_LOADED", 9, NO_DRIVER),
        (
            "LIB_RM_VERSION_MISMATCH",
            18,
            "Failed to initialize NVML: Driver/library version mismatch\n",
        ),
        (
            "NO_PERMISSION",
            4,
            "Failed to initialize NVML: Insufficient Permissions\n",
        ),
        ("UNKNOWN", 255, "Failed to initialize NVML: Unknown Error\n"),
        ("GPU_NOT_FOUND", 6, "No devices were found\n"),
    ] {
        host.change(|world| world.faults = vec![Fault::error("nvmlInit_v2", error)]);
        check(&host, "", code, sentence);
    }
    host.change(|world| {
        world.faults.clear();
        world.gpus.clear();
    });
    check(&host, "", 6, "No devices were found\n");
    let output = shell(&host, "nvidia-smi -h");
    assert!(
        output.code == 0
            && output
                .text()
                .starts_with("NVIDIA System Management Interface"),
        "{}",
        output.text()
    );
}

#[test]
fn a_lost_gpu_has_a_sentence_in_place_of_its_lines() {
    let mut host = host(["RTX-4090", "H100"]);
    host.change(|world| world.faults.push(Fault::error("*", "GPU_IS_LOST").on(0)));
    let output = shell(&host, "nvidia-smi");
    let text = output.text();
    let sentence = "Unable to determine the device handle for GPU0: GPU is lost.  Reboot the system to recover this GPU\n";
    assert!(
        output.code == 15 && text.starts_with(sentence),
        "{}: {text}{}",
        output.code,
        output.stderr
    );
    assert!(
        text.contains("GPU is lost.  Reboot the system to recover this GPU\n"),
        "{text}"
    );
    assert!(
        text.contains("|   1  NVIDIA H100") && !text.contains("|   0  "),
        "{text}"
    );
    let output = shell(&host, "nvidia-smi -i 0");
    assert_eq!(
        (output.code, output.text()),
        (15, format!("{sentence}No devices were found\n"))
    );
    let output = shell(&host, "nvidia-smi -L");
    let other = "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-00000001-1111-2222-3333-000000000001)\n";
    assert_eq!(
        (output.code, output.text()),
        (15, format!("{sentence}{other}"))
    );
    let output = shell(&host, "nvidia-smi pmon -c 1");
    let text = output.text();
    assert!(
        output.code == 15 && text.contains(sentence) && !text.contains("\n    0 "),
        "{}: {text}",
        output.code
    );
    assert!(text.contains("\n    1          -     -"), "{text}");
}

#[test]
fn a_value_or_a_list_that_cannot_be_read_has_words_in_its_place() {
    let mut host = host(["H100"]);
    let lists = ["Compute", "Graphics", "MPSCompute"]
        .map(|list| format!("nvmlDeviceGet{list}RunningProcesses_v3"));
    host.change(|world| {
        world
            .faults
            .extend(lists.iter().map(|list| Fault::error(list, "NO_PERMISSION")));
        world
            .faults
            .push(Fault::error("nvmlDeviceGetFanSpeed_v2", "UNKNOWN"));
    });
    let text = table(&host, "nvidia-smi");
    assert!(
        text.contains("|ERR!   59C    P0            588W /  700W |"),
        "{text}"
    );
    assert!(!text.contains("No running processes found"), "{text}");
    let line = "|    0   N/A  N/A             N/A    N/A   Insufficient Permissions              N/A      |";
    assert!(text.lines().any(|other| other == line), "{text}");
    // Nothing may look like a GPU without processes.
    for call in [
        "nvidia-smi --query-compute-apps=pid --format=csv,noheader",
        "nvidia-smi pmon -c 1",
    ] {
        let output = shell(&host, call);
        assert_eq!(
            output.code,
            255,
            "{call}: {}{}",
            output.text(),
            output.stderr
        );
        assert!(
            output.text().contains("Insufficient Permissions") && !output.text().contains("  - "),
            "{}",
            output.text()
        );
    }
    assert_eq!(
        shell(
            &host,
            "nvidia-smi --query-gpu=fan.speed --format=csv,noheader"
        )
        .code,
        0
    );
    let output = shell(
        &host,
        "nvidia-smi --query-gpu=index --format=csv,noheader -i 0,7",
    );
    assert_eq!((output.code, output.text().as_str()), (6, "0\n"));
}

/// In scripts that discard the standard error, nothing may look like an answer.
#[test]
fn what_only_nvidia_smi_does_ends_with_an_error_and_prints_nothing() {
    let host = host(["H100"]);
    for call in [
        "-q",
        "-q -x",
        "-x -q",
        "--query --display=MEMORY",
        "-q -d UTILIZATION -i 0",
        "dmon -c 1",
        "nvlink --status",
        "topo -m",
        "--query-accounted-apps=pid --format=csv",
        "--query-supported-clocks=gr --format=csv",
        "--query-retired-pages=gpu_uuid --format=csv",
        "mig -lgi",
        "vgpu -q",
        "conf-compute -f",
        "encodersessions -c 1",
        "-B",
        "--columns",
        "-pm 1",
        "--persistence-mode=1",
        "-i 0 -pl 300",
        "-lgc 1000,1500",
        "--lock-gpu-clocks=1000,1500 --mode=1",
        "-rgc",
        "-ac 5001,1590",
        "-r",
        "--gpu-reset -i 0",
        "-e 0",
        "-c EXCLUSIVE_PROCESS",
        "-mig 1",
        "-caa",
        "drain -p 0000:1B:00.0 -m 1",
    ] {
        let output = shell(&host, &format!("nvidia-smi {call}"));
        assert_eq!((output.code, output.text().as_str()), (2, ""), "{call}");
        assert_eq!(
            output.stderr.lines().count(),
            1,
            "{call}: {}",
            output.stderr
        );
        assert!(
            output.stderr.contains(" is for nvidia-smi only: "),
            "{call}: {}",
            output.stderr
        );
    }
    assert!(!host.path("counts").exists(), "the driver was asked");
}

#[test]
fn gputop_names_no_hidden_flag_and_no_far_word() {
    let host = Host::new(["H100"]);
    for typed in [
        "status",
        "gpu-processes",
        "--detials",
        "--only-mine",
        "--driver-version",
    ] {
        let output = host.run([typed]);
        assert!(
            output.code == 2 && !output.stderr.contains("tip:"),
            "{typed}: {}",
            output.stderr
        );
    }
    assert!(host.run(["--quer-gpu"]).stderr.contains("'--query-gpu'"));
}
