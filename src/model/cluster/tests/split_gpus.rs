//! Tests of GPUs that MIG splits.

use super::*;

#[test]
fn the_processes_of_a_mig_instance_and_its_troubles_are_those_of_its_gpu() {
    let host = ("host", "gpu-1");
    let gpu: LabelList<'_> = &[host, ("gpu", "0"), ("uuid", "GPU-a")];
    let mut server = AskedServer::with(GPUTOP, false, &[&[host]]);
    server.knows(
        RoundPart::OfGpus(form(GPUTOP), Figure::MemoryUsed),
        gpu,
        GIB,
    );
    for (user, instance) in [("alice", "MIG-a"), ("bob", "MIG-b")] {
        let owner: LabelList<'_> = &[host, ("gpu", "0"), ("uuid", instance), ("user", user)];
        server.knows(RoundPart::OwnersOfGpus(form(GPUTOP)), owner, 1.0);
    }
    // The GPU of an instance is the one whose index its own begins with.
    for instance in ["0:7", "1:7"] {
        let leak: LabelList<'_> = &[host, ("gpu", instance), ("uuid", "MIG-a")];
        let leaks = RoundPart::Troubles(form(GPUTOP), Figure::Leak);
        server.knows(leaks, leak, 1.0);
    }
    server.ask_totals();
    server.ask_rows();
    assert_eq!(server.states("gpu-1"), [("0".to_owned(), GpuState::Leak)]);
    let owners = server.host("gpu-1").gpus[0].owners.iter();
    let users = owners.map(|owner| owner.user.as_ref().expect("it has one").as_str());
    assert_eq!(users.collect::<Vec<_>>(), ["alice", "bob"]);
}
