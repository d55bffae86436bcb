//! Writes a world file to stdout: `cargo run -p fake-nvml --example world -- H100*8 tenants=64 [PID…]`.
//!
//! Tenants are dealt out to the GPUs in turn. They get the PIDs given, and fictional ones when those run out.

use fake_nvml::{Tenant, World};

fn main() {
    let (mut personas, mut tenants, mut pids) = (Vec::new(), 0, Vec::new());
    for argument in std::env::args().skip(1) {
        if let Some(count) = argument.strip_prefix("tenants=") {
            tenants = count.parse().expect("tenants=NUMBER");
        } else if let Ok(pid) = argument.parse::<u32>() {
            pids.push(pid);
        } else {
            let (persona, times) = argument.split_once('*').unwrap_or((&argument, "1"));
            let times = times.parse().expect("PERSONA*NUMBER");
            personas.extend(std::iter::repeat_n(persona.to_owned(), times));
        }
    }
    let mut world = World::of(personas.iter().map(String::as_str));
    for (index, gpu) in (0..tenants.max(pids.len())).zip((0..world.gpus.len()).cycle()) {
        let mut tenant = match (pids.get(index), u32::try_from(index)) {
            (Some(pid), _) => Tenant::new(*pid, 4 << 30),
            (None, Ok(index)) => Tenant::fictional(3_000_000 + index, 4 << 30),
            (None, Err(_)) => break,
        };
        tenant.sm = Some(10);
        world.gpus[gpu].tenants.push(tenant);
    }
    println!("{}", serde_json::to_string_pretty(&world).expect("plain data"));
}
