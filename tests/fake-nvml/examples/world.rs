//! Writes a world file to stdout: `cargo run -p fake-nvml --example world -- H100*8 processes=64
//! [PID…]`.
//!
//! The processes are assigned to the GPUs in turn. They have the given PIDs, and then fictional
//! ones.

use fake_nvml::{GpuProcess, World};

fn main() {
    let (mut personas, mut processes, mut pids) = (Vec::new(), 0, Vec::new());
    for argument in std::env::args().skip(1) {
        if let Some(count) = argument.strip_prefix("processes=") {
            processes = count.parse().expect("processes=NUMBER");
        } else if let Ok(pid) = argument.parse::<u32>() {
            pids.push(pid);
        } else {
            let (persona, times) = argument.split_once('*').unwrap_or((&argument, "1"));
            let times = times.parse().expect("PERSONA*NUMBER");
            personas.extend(std::iter::repeat_n(persona.to_owned(), times));
        }
    }
    let mut world = World::with_gpus(personas.iter().map(String::as_str));
    for (index, gpu) in (0..processes.max(pids.len())).zip((0..world.gpus.len()).cycle()) {
        let mut process = match (pids.get(index), u32::try_from(index)) {
            (Some(pid), _) => GpuProcess::new(*pid, 4 << 30),
            (None, Ok(index)) => GpuProcess::fictional(3_000_000 + index, 4 << 30),
            (None, Err(_)) => break,
        };
        process.sm = Some(10);
        world.gpus[gpu].processes.push(process);
    }
    println!(
        "{}",
        serde_json::to_string_pretty(&world).expect("plain data")
    );
}
