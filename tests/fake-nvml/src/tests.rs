//! The library as its callers meet it: through the exported functions, and through `dlopen`.

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
    Fault, Kind, Tenant, Which, World, WorldFile, Xid, abi,
    abi::{Code, EventData, Handle, MemoryV1, MemoryV2, Out, ProcessSample, Rates, version},
    devices::*,
    events::*,
    gate, install, library, library_without,
    mig::*,
    processes::*,
    scene::Scene,
    system::*,
};

const GIB: u64 = 1 << 30;

/// There is one library in a process, so one test at a time has it.
static ONE: Mutex<()> = Mutex::new(());

struct Stage {
    file: WorldFile,
    _scratch: Scratch,
    _one: MutexGuard<'static, ()>,
}

impl Stage {
    fn of(world: World) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = Scratch::new();
        let file = WorldFile::create(scratch.join("world.json"), world).expect("a scratch directory");
        let mut scene = gate::scene();
        *scene = Scene::default();
        scene.open(file.path()).expect("a world");
        scene.opened = 1;
        Self { file, _scratch: scratch, _one: one }
    }

    /// Changes the world, and lets it be seen.
    fn change(&mut self, change: impl FnOnce(&mut World)) {
        self.file.change(change).expect("a scratch directory");
        gate::scene().grow_stale();
    }
}

/// A directory of one test's own, gone when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fake-nvml-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
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
        // It may fail: then some litter stays, and no test is wrong for that.
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn h100_with(tenants: impl IntoIterator<Item = Tenant>) -> World {
    let mut world = World::of(["H100"]);
    world.gpus[0].tenants.extend(tenants);
    world
}

fn sleeper() -> Child {
    Command::new("sleep").arg("600").spawn().expect("sleep(1)")
}

fn ends(child: &mut Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
    gate::scene().grow_stale();
}

fn gpu(index: u32) -> Handle {
    let mut handle = std::ptr::null_mut();
    assert_eq!(nvmlDeviceGetHandleByIndex_v2(index, Out::from(&mut handle)), 0);
    handle
}

fn used(device: Handle) -> (u64, u64) {
    let mut v1 = MemoryV1 { total: 0, free: 0, used: 0 };
    let mut v2 = MemoryV2 { version: version::<MemoryV2>(2), total: 0, reserved: 0, free: 0, used: 0 };
    assert_eq!(nvmlDeviceGetMemoryInfo(device, Out::from(&mut v1)), 0);
    assert_eq!(nvmlDeviceGetMemoryInfo_v2(device, Out::from(&mut v2)), 0);
    assert_eq!(v2.total, v2.reserved + v2.used + v2.free);
    (v1.used - v2.reserved, v2.used)
}

/// The PIDs of the compute list, read with that stride.
fn pids(device: Handle, stride: usize) -> Vec<u32> {
    let mut count = 64_u32;
    let mut buffer = vec![0xAA_u8; 64 * 32];
    assert_eq!(nvmlDeviceGetComputeRunningProcesses_v3(device, Out::from(&mut count), Out::list(&mut buffer)), 0);
    let entry = |it: usize| buffer[it * stride..][..4].try_into().map(u32::from_le_bytes).expect("four bytes");
    (0..count as usize).map(entry).collect()
}

fn rates(device: Handle) -> (i32, u32) {
    let mut rates = Rates { gpu: 0, memory: 0 };
    (nvmlDeviceGetUtilizationRates(device, Out::from(&mut rates)), rates.gpu)
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
    let mut stage = Stage::of(World::of(["H100", "A100"]));
    let (first, second) = (gpu(0), gpu(1));
    stage.change(|world| world.gpus.swap(0, 1));
    assert_eq!((gpu(1), gpu(0)), (first, second));
    stage.change(|world| world.gpus[0].hidden = true);
    assert_eq!(gpu(0), first);
    assert_eq!(rates(second).0, 15);
    stage.change(|world| world.gpus.truncate(1));
    assert_eq!(rates(first).0, 15);
}

#[test]
fn used_is_what_tenants_hold_and_what_nobody_claims() {
    let mut both = Tenant::fictional(4242, 3 * GIB);
    both.kinds = vec![Kind::Compute, Kind::Graphics];
    let mut hidden = Tenant::fictional(4243, 0);
    hidden.memory = None;
    let mut stage = Stage::of(h100_with([both, hidden]));
    assert_eq!(used(gpu(0)), (3 * GIB, 3 * GIB));
    stage.change(|world| world.gpus[0].memory.unaccounted = GIB);
    assert_eq!(used(gpu(0)), (4 * GIB, 4 * GIB));
}

#[test]
fn a_tenant_leaves_when_its_process_ends_and_its_memory_with_the_last_holder() {
    let (mut main, mut worker) = (sleeper(), sleeper());
    let mut tenant = Tenant::new(main.id(), 2 * GIB);
    tenant.holders = vec![worker.id()];
    let never = Tenant::new(0x3fff_ffff, GIB);
    let _stage = Stage::of(h100_with([tenant, never]));
    assert_eq!(pids(gpu(0), 24), [main.id()]);
    ends(&mut main);
    assert_eq!((pids(gpu(0), 24), used(gpu(0)).1), (vec![], 2 * GIB));
    ends(&mut worker);
    assert_eq!(used(gpu(0)).1, 0);
}

#[test]
fn the_list_is_written_with_the_stride_of_the_driver() {
    let mut stage = Stage::of(h100_with([7001, 7002, 7003].map(|pid| Tenant::fictional(pid, GIB))));
    for stride in [16, 24, 32] {
        stage.change(|world| world.stride = stride);
        assert_eq!(pids(gpu(0), stride), [7001, 7002, 7003]);
    }
    let mut count = 0;
    let answer = nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), Out::from(&mut count), Out::null());
    assert_eq!((answer, count), (7, 3));
    stage.change(|world| world.faults.push(Fault::garbage("nvmlDeviceGetComputeRunningProcesses_v3")));
    assert_eq!(pids(gpu(0), 32)[0], u32::MAX);
}

#[test]
fn memory_grows_from_the_given_time() {
    let mut tenant = Tenant::fictional(4242, GIB);
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    (tenant.growth, tenant.since) = (1e6, Some(now - 100.0));
    let _stage = Stage::of(h100_with([tenant]));
    let grown = used(gpu(0)).1 - GIB;
    assert!((100_000_000..110_000_000).contains(&grown), "{grown}");
}

#[test]
fn memory_may_follow_that_of_the_process() {
    let mut tenant = Tenant::new(std::process::id(), GIB);
    tenant.follow_rss = true;
    let _stage = Stage::of(h100_with([tenant]));
    assert!(used(gpu(0)).1 > GIB + (1 << 20));
}

#[test]
fn processes_that_compute_have_samples_until_they_were_seen() {
    let (mut busy, idle) = (Tenant::fictional(1001, GIB), Tenant::fictional(1002, GIB));
    busy.sm = Some(80);
    let _stage = Stage::of(h100_with([busy, idle]));
    let (device, mut count) = (gpu(0), 0);
    assert_eq!(nvmlDeviceGetProcessUtilization(device, Out::null(), Out::from(&mut count), 0), 7);
    let mut sample = ProcessSample { pid: 0, time_us: 0, sm: 0, mem: 0, enc: 0, dec: 0 };
    assert_eq!(nvmlDeviceGetProcessUtilization(device, Out::from(&mut sample), Out::from(&mut count), 0), 0);
    assert_eq!((count, sample.pid, sample.sm), (1, 1001, 80));
    let later = sample.time_us + 1_000_000;
    assert_eq!(nvmlDeviceGetProcessUtilization(device, Out::from(&mut sample), Out::from(&mut count), later), 6);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the claim is about time")]
fn faults_hit_what_they_name_and_nothing_else() {
    let mut stage = Stage::of(World::of(["H100", "H100"]));
    let (first, second) = (gpu(0), gpu(1));
    let name = "nvmlDeviceGetUtilizationRates";
    stage.change(|world| world.faults = vec![Fault::error(name, "NO_PERMISSION").on(1)]);
    assert_eq!((rates(first), rates(second).0), ((0, 97), 4));
    stage.change(|world| world.faults = vec![Fault::garbage(name)]);
    assert!(rates(first).1 > 100);
    stage.change(|world| world.faults = vec![Fault::slow(name, 30)]);
    let started = Instant::now();
    assert_eq!(rates(first), (0, 97));
    assert!(started.elapsed() >= Duration::from_millis(30));
    stage.change(|world| world.gpus[1].falls_off_the_bus());
    assert_eq!(rates(second).0, 15);
}

#[test]
fn a_hang_stops_its_own_thread_until_the_file_says_otherwise() {
    let mut stage = Stage::of(World::of(["H100", "H100"]));
    let (first, second) = (gpu(0).addr(), gpu(1));
    stage.change(|world| world.faults = vec![Fault::hang("*").on(0)]);
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || answer.send(rates(std::ptr::without_provenance_mut(first))));
    assert!(answered.recv_timeout(Duration::from_millis(40)).is_err());
    assert_eq!(rates(second), (0, 97));
    stage.change(|world| world.faults.clear());
    assert_eq!(answered.recv_timeout(Duration::from_secs(10)), Ok((0, 97)));
}

#[test]
fn a_part_has_its_own_memory_and_its_gpu_no_utilisation() {
    let mut world = World::of(["A100-MIG"]);
    let mig = world.gpus[0].mig.as_mut().expect("it is divided");
    mig.parts[1].tenants.push(Tenant::fictional(5005, GIB));
    let _stage = Stage::of(world);
    let (device, mut part, mut instance) = (gpu(0), std::ptr::null_mut(), 0);
    assert_eq!(rates(device).0, 3);
    assert_eq!(nvmlDeviceGetMigDeviceHandleByIndex(device, 1, Out::from(&mut part)), 0);
    assert_eq!(nvmlDeviceGetGpuInstanceId(part, Out::from(&mut instance)), 0);
    assert_eq!((instance, used(part).1, used(device).1), (7, GIB, GIB));
    assert_eq!((pids(part, 24), pids(device, 24)), (vec![5005], vec![5005]));
    assert_eq!(nvmlDeviceGetMigDeviceHandleByIndex(device, 3, Out::from(&mut part)), 6);
}

#[test]
fn an_xid_is_delivered_once_to_each_set() {
    let mut stage = Stage::of(World::of(["H100"]));
    let (mut set, device) = (std::ptr::null_mut(), gpu(0));
    let mut data = EventData { device: set, kind: 0, data: 0, gpu_instance: 0, compute_instance: 0 };
    assert_eq!(nvmlEventSetCreate(Out::from(&mut set)), 0);
    assert_eq!(nvmlDeviceRegisterEvents(device, 8, set), 0);
    assert_eq!(nvmlEventSetWait_v2(set, Out::from(&mut data), 0), 10);
    stage.change(|world| world.xids.push(Xid { gpu: Which::Place(0), xid: 31 }));
    assert_eq!(nvmlEventSetWait_v2(set, Out::from(&mut data), 100), 0);
    assert_eq!((data.device, data.kind, data.data), (device, 8, 31));
    assert_eq!(nvmlEventSetWait_v2(set, Out::from(&mut data), 10), 10);
    assert_eq!(nvmlEventSetFree(set), 0);
    assert_eq!(nvmlEventSetWait_v2(set, Out::from(&mut data), 0), 2);
}

#[test]
fn a_wrong_handle_or_version_is_refused() {
    let _stage = Stage::of(World::of(["H100"]));
    for wrong in [0, 1, usize::MAX] {
        assert_eq!(rates(std::ptr::without_provenance_mut(wrong)).0, 2);
    }
    let mut memory = MemoryV2 { version: 1, total: 0, reserved: 0, free: 0, used: 0 };
    assert_eq!(nvmlDeviceGetMemoryInfo_v2(gpu(0), Out::from(&mut memory)), 25);
    assert_eq!(Code::of(&crate::ErrorCode::Name("NVML_ERROR_GPU_IS_LOST".to_owned())), Some(Code::GPU_IS_LOST));
}

#[test]
fn the_file_starts_from_a_persona_and_refuses_slips_of_the_pen() {
    let world = World::parse(r#"{"gpus": [{"persona": "H100", "power": {"usage": null}, "uuid": "GPU-x"}]}"#);
    let gpu = &world.expect("a world").gpus[0];
    assert_eq!((gpu.power.usage, gpu.power.limit, &*gpu.uuid), (None, Some(700_000), "GPU-x"));
    assert!(World::parse(r#"{"gpus": [{"persona": "H100", "tenant": []}]}"#).is_err());
    assert!(World::parse(r#"{"faults": [{"function": "*", "error": "NO_SUCH"}]}"#).is_err());
    let all = World::of(["H100", "A100", "A100-MIG", "RTX-4090", "GTX-970"]);
    let text = serde_json::to_string(&all).expect("plain data");
    assert_eq!(World::parse(&text).expect("its own output").gpus.len(), 5);
}

/// In a process of its own, as `dlopen` by name and counters need it.
#[test]
fn programs_load_it_count_with_it_and_miss_what_was_taken_out() {
    const CHILD: &str = "FAKE_NVML_TEST_CHILD";
    if env::var_os(CHILD).is_some() {
        return a_program();
    }
    let scratch = Scratch::new();
    let (world, counts) = (scratch.join("loaded.json"), scratch.join("counts"));
    World::of(["H100", "GTX-970"]).save(&world).expect("a scratch directory");
    install(scratch.join("driver")).expect("a scratch directory");
    library_without(&["nvmlDeviceGetMemoryInfo_v2"], scratch.join("old.so")).expect("a copy");
    let test = "tests::programs_load_it_count_with_it_and_miss_what_was_taken_out";
    for _ in 0..2 {
        let output = Command::new(env::current_exe().expect("a path"))
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, scratch.join("old.so"))
            .env("FAKE_NVML_WORLD", &world)
            .env("FAKE_NVML_COUNTS", &counts)
            .env("LD_LIBRARY_PATH", scratch.join("driver"))
            .output()
            .expect("ourselves");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let counted = crate::counts(counts).expect("counts");
    assert_eq!((counted["nvmlInit_v2"], counted["nvmlDeviceGetCount_v2"]), (2, 200));
    assert!(library_without(&["nvmlNever"], scratch.join("never.so")).is_err());
    assert!(library().is_file());
}

fn a_program() {
    // SAFETY: the library is ours, and its functions have these types.
    unsafe {
        let nvml = libloading::Library::new("libnvidia-ml.so.1").expect("it is in LD_LIBRARY_PATH");
        let init = nvml.get::<extern "C" fn() -> i32>(b"nvmlInit_v2\0").expect("a function");
        let count = nvml.get::<extern "C" fn(&mut u32) -> i32>(b"nvmlDeviceGetCount_v2\0").expect("a function");
        let mut gpus = 0;
        assert_eq!(init(), 0);
        for _ in 0..100 {
            assert_eq!((count(&mut gpus), gpus), (0, 2));
        }
        let old = libloading::Library::new(env::var_os("FAKE_NVML_TEST_CHILD").expect("a path")).expect("a library");
        assert!(old.get::<extern "C" fn()>(b"nvmlDeviceGetMemoryInfo_v2\0").is_err());
        assert!(old.get::<extern "C" fn()>(b"nvmlDeviceGetMemoryInfo\0").is_ok());
    }
}

#[test]
fn the_readme_shows_a_world() {
    let readme = include_str!("../README.md");
    let (_, from) = readme.split_once("```json\n").expect("an example");
    let (example, _) = from.split_once("```").expect("its end");
    assert_eq!(World::parse(example).map(|it| it.gpus.len()), Ok(2));
}
