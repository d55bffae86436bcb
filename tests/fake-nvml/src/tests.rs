//! Tests of the library through its exported functions, and through `dlopen`.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    Fault, GpuProcess, GpuSelector, ProcessKind, World, WorldFile, Xid, abi,
    abi::{Code, EventData, Handle, MemoryV1, MemoryV2, Out, ProcessSample, Rates, version},
    calls,
    devices::*,
    events::*,
    install, library, library_without,
    machine::Machine,
    mig::*,
    processes::*,
    system::*,
};

const GIB: u64 = 1 << 30;

/// Held by the test that uses the library: its state exists once per process.
static LIBRARY: Mutex<()> = Mutex::new(());

struct TestMachine {
    file: WorldFile,
    _scratch: Scratch,
    _lock: MutexGuard<'static, ()>,
}

impl TestMachine {
    fn new(world: World) -> Self {
        let lock = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = Scratch::new();
        let file =
            WorldFile::create(scratch.join("world.json"), world).expect("a scratch directory");
        let mut machine = calls::machine();
        *machine = Machine::default();
        machine.open(file.path()).expect("a world");
        machine.opened = 1;
        Self {
            file,
            _scratch: scratch,
            _lock: lock,
        }
    }

    /// Changes the world file, and makes the next call read it.
    fn change(&mut self, change: impl FnOnce(&mut World)) {
        self.file.change(change).expect("a scratch directory");
        calls::machine().expire();
    }
}

/// A directory of one test's own, gone when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "fake-nvml-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        let directory = env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a scratch directory");
        Self(directory)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, files are left behind, but the test is right.
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}

fn h100_with(processes: impl IntoIterator<Item = GpuProcess>) -> World {
    let mut world = World::with_gpus(["H100"]);
    world.gpus[0].processes.extend(processes);
    world
}

fn start_sleep() -> Child {
    Command::new("sleep").arg("600").spawn().expect("sleep(1)")
}

fn end(child: &mut Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
    calls::machine().expire();
}

fn gpu(index: u32) -> Handle {
    let mut handle = std::ptr::null_mut();
    assert_eq!(
        nvmlDeviceGetHandleByIndex_v2(index, Out::from(&mut handle)),
        0
    );
    handle
}

fn used(device: Handle) -> (u64, u64) {
    let mut v1 = MemoryV1 {
        total: 0,
        free: 0,
        used: 0,
    };
    let mut v2 = MemoryV2 {
        version: version::<MemoryV2>(2),
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    assert_eq!(nvmlDeviceGetMemoryInfo(device, Out::from(&mut v1)), 0);
    assert_eq!(nvmlDeviceGetMemoryInfo_v2(device, Out::from(&mut v2)), 0);
    assert_eq!(v2.total, v2.reserved + v2.used + v2.free);
    (v1.used - v2.reserved, v2.used)
}

/// The PIDs of the compute list, read with that stride.
fn pids(device: Handle, stride: usize) -> Vec<u32> {
    let mut count = 64_u32;
    let mut buffer = vec![0xAA_u8; 64 * 32];
    assert_eq!(
        nvmlDeviceGetComputeRunningProcesses_v3(
            device,
            Out::from(&mut count),
            Out::list(&mut buffer)
        ),
        0
    );
    let entry = |index: usize| {
        buffer[index * stride..][..4]
            .try_into()
            .map(u32::from_le_bytes)
            .expect("four bytes")
    };
    (0..count as usize).map(entry).collect()
}

fn rates(device: Handle) -> (i32, u32) {
    let mut rates = Rates { gpu: 0, memory: 0 };
    (
        nvmlDeviceGetUtilizationRates(device, Out::from(&mut rates)),
        rates.gpu,
    )
}

#[test]
fn structs_are_laid_out_as_in_nvml_h() {
    assert_eq!(size_of::<abi::PciInfo>(), 68);
    assert_eq!(size_of::<abi::PciInfoExt>(), 64);
    assert_eq!(version::<MemoryV2>(2), 0x0200_0028);
    assert_eq!(size_of::<ProcessSample>(), 32);
    assert_eq!(size_of::<abi::ProcessShare>(), 40);
    assert_eq!(size_of::<abi::ProcessShares>(), 24);
    assert_eq!(size_of::<abi::Attributes>(), 40);
    assert_eq!(size_of::<EventData>(), 32);
    assert_eq!(size_of::<abi::FieldValue>(), 40);
    assert_eq!(size_of::<abi::Sample>(), 16);
    assert_eq!(size_of::<crate::gpm::Metric>(), 40);
    assert_eq!(size_of::<crate::gpm::MetricsHead>(), 24);
}

#[test]
fn a_handle_outlives_a_change_of_the_index() {
    let mut machine = TestMachine::new(World::with_gpus(["H100", "A100"]));
    let (first, second) = (gpu(0), gpu(1));
    machine.change(|world| world.gpus.swap(0, 1));
    assert_eq!((gpu(1), gpu(0)), (first, second));
    machine.change(|world| world.gpus[0].hidden = true);
    assert_eq!(gpu(0), first);
    assert_eq!(rates(second).0, 15);
    machine.change(|world| world.gpus.truncate(1));
    assert_eq!(rates(first).0, 15);
}

#[test]
fn used_memory_is_that_of_processes_plus_unaccounted_memory() {
    let mut both = GpuProcess::fictional(4242, 3 * GIB);
    both.kinds = vec![ProcessKind::Compute, ProcessKind::Graphics];
    let mut hidden = GpuProcess::fictional(4243, 0);
    hidden.memory = None;
    let mut machine = TestMachine::new(h100_with([both, hidden]));
    assert_eq!(used(gpu(0)), (3 * GIB, 3 * GIB));
    machine.change(|world| world.gpus[0].memory.unaccounted = GIB);
    assert_eq!(used(gpu(0)), (4 * GIB, 4 * GIB));
}

#[test]
fn an_ended_process_is_not_listed_and_its_memory_stays_until_the_last_holder_ends() {
    let (mut main, mut worker) = (start_sleep(), start_sleep());
    let mut process = GpuProcess::new(main.id(), 2 * GIB);
    process.holders = vec![worker.id()];
    let never = GpuProcess::new(0x3fff_ffff, GIB);
    let _machine = TestMachine::new(h100_with([process, never]));
    assert_eq!(pids(gpu(0), 24), [main.id()]);
    end(&mut main);
    assert_eq!((pids(gpu(0), 24), used(gpu(0)).1), (vec![], 2 * GIB));
    end(&mut worker);
    assert_eq!(used(gpu(0)).1, 0);
}

#[test]
fn process_lists_are_written_with_the_stride_of_the_driver() {
    let mut machine = TestMachine::new(h100_with(
        [7001, 7002, 7003].map(|pid| GpuProcess::fictional(pid, GIB)),
    ));
    for stride in [16, 24, 32] {
        machine.change(|world| world.stride = stride);
        assert_eq!(pids(gpu(0), stride), [7001, 7002, 7003]);
    }
    let mut count = 0;
    let answer =
        nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), Out::from(&mut count), Out::null());
    assert_eq!((answer, count), (7, 3));
    machine.change(|world| {
        world
            .faults
            .push(Fault::garbage("nvmlDeviceGetComputeRunningProcesses_v3"))
    });
    assert_eq!(pids(gpu(0), 32)[0], u32::MAX);
}

#[test]
fn memory_grows_from_the_given_time() {
    let mut process = GpuProcess::fictional(4242, GIB);
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs_f64();
    (process.growth, process.since) = (1e6, Some(now - 100.0));
    let _machine = TestMachine::new(h100_with([process]));
    let grown = used(gpu(0)).1 - GIB;
    assert!((100_000_000..110_000_000).contains(&grown), "{grown}");
}

#[test]
fn memory_can_follow_the_resident_memory_of_the_process() {
    let mut process = GpuProcess::new(std::process::id(), GIB);
    process.follow_rss = true;
    let _machine = TestMachine::new(h100_with([process]));
    assert!(used(gpu(0)).1 > GIB + (1 << 20));
}

#[test]
fn only_busy_processes_have_samples_and_none_is_returned_twice() {
    let (mut busy, idle) = (
        GpuProcess::fictional(1001, GIB),
        GpuProcess::fictional(1002, GIB),
    );
    busy.sm = Some(80);
    let _machine = TestMachine::new(h100_with([busy, idle]));
    let (device, mut count) = (gpu(0), 0);
    assert_eq!(
        nvmlDeviceGetProcessUtilization(device, Out::null(), Out::from(&mut count), 0),
        7
    );
    let mut sample = ProcessSample {
        pid: 0,
        time_us: 0,
        sm: 0,
        mem: 0,
        enc: 0,
        dec: 0,
    };
    assert_eq!(
        nvmlDeviceGetProcessUtilization(device, Out::from(&mut sample), Out::from(&mut count), 0),
        0
    );
    assert_eq!((count, sample.pid, sample.sm), (1, 1001, 80));
    let later = sample.time_us + 1_000_000;
    assert_eq!(
        nvmlDeviceGetProcessUtilization(
            device,
            Out::from(&mut sample),
            Out::from(&mut count),
            later
        ),
        6
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test measures time")]
fn a_fault_affects_only_its_function_and_gpu() {
    let mut machine = TestMachine::new(World::with_gpus(["H100", "H100"]));
    let (first, second) = (gpu(0), gpu(1));
    let name = "nvmlDeviceGetUtilizationRates";
    machine.change(|world| world.faults = vec![Fault::error(name, "NO_PERMISSION").on(1)]);
    assert_eq!((rates(first), rates(second).0), ((0, 97), 4));
    machine.change(|world| world.faults = vec![Fault::garbage(name)]);
    assert!(rates(first).1 > 100);
    machine.change(|world| world.faults = vec![Fault::slow(name, 30)]);
    let started = Instant::now();
    assert_eq!(rates(first), (0, 97));
    assert!(started.elapsed() >= Duration::from_millis(30));
    machine.change(|world| world.gpus[1].falls_off_the_bus());
    assert_eq!(rates(second).0, 15);
}

#[test]
fn a_hang_blocks_its_own_thread_until_the_file_changes() {
    let mut machine = TestMachine::new(World::with_gpus(["H100", "H100"]));
    let (first, second) = (gpu(0).addr(), gpu(1));
    machine.change(|world| world.faults = vec![Fault::hang("*").on(0)]);
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || answer.send(rates(std::ptr::without_provenance_mut(first))));
    assert!(answered.recv_timeout(Duration::from_millis(40)).is_err());
    assert_eq!(rates(second), (0, 97));
    machine.change(|world| world.faults.clear());
    assert_eq!(answered.recv_timeout(Duration::from_secs(10)), Ok((0, 97)));
}

#[test]
fn a_mig_instance_has_its_own_memory_and_its_gpu_no_utilization() {
    let mut world = World::with_gpus(["A100-MIG"]);
    let mig = world.gpus[0].mig.as_mut().expect("it is divided");
    mig.instances[1]
        .processes
        .push(GpuProcess::fictional(5005, GIB));
    let _machine = TestMachine::new(world);
    let (device, mut part, mut instance) = (gpu(0), std::ptr::null_mut(), 0);
    assert_eq!(rates(device).0, 3);
    assert_eq!(
        nvmlDeviceGetMigDeviceHandleByIndex(device, 1, Out::from(&mut part)),
        0
    );
    assert_eq!(
        nvmlDeviceGetGpuInstanceId(part, Out::from(&mut instance)),
        0
    );
    assert_eq!((instance, used(part).1, used(device).1), (7, GIB, GIB));
    assert_eq!((pids(part, 24), pids(device, 24)), (vec![5005], vec![5005]));
    assert_eq!(
        nvmlDeviceGetMigDeviceHandleByIndex(device, 3, Out::from(&mut part)),
        6
    );
}

#[test]
fn an_xid_is_delivered_once_to_each_set() {
    let mut machine = TestMachine::new(World::with_gpus(["H100"]));
    let (mut set, device) = (std::ptr::null_mut(), gpu(0));
    let mut data = EventData {
        device: set,
        kind: 0,
        data: 0,
        gpu_instance: 0,
        compute_instance: 0,
    };
    assert_eq!(nvmlEventSetCreate(Out::from(&mut set)), 0);
    assert_eq!(nvmlDeviceRegisterEvents(device, 8, set), 0);
    assert_eq!(nvmlEventSetWait_v2(set, Out::from(&mut data), 0), 10);
    machine.change(|world| {
        world.xids.push(Xid {
            gpu: GpuSelector::Position(0),
            xid: 31,
        })
    });
    assert_eq!(nvmlEventSetWait_v2(set, Out::from(&mut data), 100), 0);
    assert_eq!((data.device, data.kind, data.data), (device, 8, 31));
    assert_eq!(nvmlEventSetWait_v2(set, Out::from(&mut data), 10), 10);
    assert_eq!(nvmlEventSetFree(set), 0);
    assert_eq!(nvmlEventSetWait_v2(set, Out::from(&mut data), 0), 2);
}

#[test]
fn wrong_handles_and_versions_are_rejected() {
    let _machine = TestMachine::new(World::with_gpus(["H100"]));
    for wrong in [0, 1, usize::MAX] {
        assert_eq!(rates(std::ptr::without_provenance_mut(wrong)).0, 2);
    }
    let mut memory = MemoryV2 {
        version: 1,
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    assert_eq!(
        nvmlDeviceGetMemoryInfo_v2(gpu(0), Out::from(&mut memory)),
        25
    );
    assert_eq!(
        Code::find(&crate::ErrorCode::Name("NVML_ERROR_GPU_IS_LOST".to_owned())),
        Some(Code::GPU_IS_LOST)
    );
}

#[test]
fn a_world_file_changes_a_persona_and_unknown_fields_are_errors() {
    let world = World::parse(
        r#"{"gpus": [{"persona": "H100", "power": {"usage": null}, "uuid": "GPU-x"}]}"#,
    );
    let gpu = &world.expect("a world").gpus[0];
    assert_eq!(
        (gpu.power.usage, gpu.power.limit, &*gpu.uuid),
        (None, Some(700_000), "GPU-x")
    );
    assert!(World::parse(r#"{"gpus": [{"persona": "H100", "proceses": []}]}"#).is_err());
    assert!(World::parse(r#"{"faults": [{"function": "*", "error": "NO_SUCH"}]}"#).is_err());
    let all = World::with_gpus(["H100", "A100", "A100-MIG", "RTX-4090", "GTX-970"]);
    let text = serde_json::to_string(&all).expect("plain data");
    assert_eq!(World::parse(&text).expect("its own output").gpus.len(), 5);
}

/// Runs itself as a child process: `dlopen` by name and the counters need their own environment.
#[test]
fn programs_load_the_library_its_calls_are_counted_and_functions_can_be_removed() {
    const CHILD: &str = "FAKE_NVML_TEST_CHILD";
    if env::var_os(CHILD).is_some() {
        return use_library();
    }
    let scratch = Scratch::new();
    let (world, counts) = (scratch.join("loaded.json"), scratch.join("counts"));
    World::with_gpus(["H100", "GTX-970"])
        .save(&world)
        .expect("a scratch directory");
    install(scratch.join("driver")).expect("a scratch directory");
    library_without(&["nvmlDeviceGetMemoryInfo_v2"], scratch.join("old.so")).expect("a copy");
    let test =
        "tests::programs_load_the_library_its_calls_are_counted_and_functions_can_be_removed";
    for _ in 0..2 {
        let output = Command::new(env::current_exe().expect("a path"))
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, scratch.join("old.so"))
            .env("FAKE_NVML_WORLD", &world)
            .env("FAKE_NVML_COUNTS", &counts)
            .env("LD_LIBRARY_PATH", scratch.join("driver"))
            .output()
            .expect("ourselves");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let counted = crate::counts(counts).expect("counts");
    assert_eq!(
        (counted["nvmlInit_v2"], counted["nvmlDeviceGetCount_v2"]),
        (2, 200)
    );
    assert!(library_without(&["nvmlNever"], scratch.join("never.so")).is_err());
    assert!(library().is_file());
}

fn use_library() {
    // SAFETY: the library is ours, and its functions have these types.
    unsafe {
        let nvml = libloading::Library::new("libnvidia-ml.so.1").expect("it is in LD_LIBRARY_PATH");
        let init = nvml
            .get::<extern "C" fn() -> i32>(b"nvmlInit_v2\0")
            .expect("a function");
        let count = nvml
            .get::<extern "C" fn(&mut u32) -> i32>(b"nvmlDeviceGetCount_v2\0")
            .expect("a function");
        let mut gpus = 0;
        assert_eq!(init(), 0);
        for _ in 0..100 {
            assert_eq!((count(&mut gpus), gpus), (0, 2));
        }
        let old = libloading::Library::new(env::var_os("FAKE_NVML_TEST_CHILD").expect("a path"))
            .expect("a library");
        assert!(
            old.get::<extern "C" fn()>(b"nvmlDeviceGetMemoryInfo_v2\0")
                .is_err()
        );
        assert!(
            old.get::<extern "C" fn()>(b"nvmlDeviceGetMemoryInfo\0")
                .is_ok()
        );
    }
}

#[test]
fn the_example_of_the_readme_is_a_valid_world_file() {
    let readme = include_str!("../README.md");
    let (_, from) = readme.split_once("```json\n").expect("an example");
    let (example, _) = from.split_once("```").expect("its end");
    assert_eq!(World::parse(example).map(|world| world.gpus.len()), Ok(2));
}
