//! Which GPUs can access each other's memory is found at set-up and said. The emulated driver is told what its GPUs cannot.

use super::{are_there, is_emulated, told};

#[test]
#[ignore = "needs a GPU"]
fn gpu_two_without_peer_access_are_named() {
    if !is_emulated() || !are_there(3) {
        return;
    }
    let text = told(3, "gpu refused 3", |_| vec![("EMU_NO_PEERS", "1")]);
    let words = "MACO0100: GPU 0 (NVIDIA H200 (emulated)) of rank 0 cannot access the memory of GPU 1 (NVIDIA H200 (emulated)) of rank 1";
    assert!(text.starts_with("MACO0096: ranks 0, 1 and 2 failed at `share memory of GPUs`") && text.contains(words), "{text}");
    assert!(text.contains("there is no peer access between the two"), "{text}");
    // On one GPU none is needed.
    assert_eq!(told(2, "gpu exchange 1", |_| vec![("EMU_NO_PEERS", "1")]), "");
    // One that two ranks have, and one of another: who can do its part does not go on either.
    let text = told(3, "gpu refused 2", |_| vec![("EMU_NO_PEERS", "1")]);
    assert!(text.starts_with("MACO0096: ranks 0, 1 and 2 failed") && text.contains("of rank 0 cannot access"), "{text}");
}

/// Some machines have it in one direction alone: whoever has not says so, and what it could do the other way.
#[test]
#[ignore = "needs a GPU"]
fn gpu_access_in_one_direction_is_said() {
    if !is_emulated() || !are_there(3) {
        return;
    }
    for (pair, rank, peer) in [("0>1", 0, 1), ("1>0", 1, 0), ("2>0", 2, 0)] {
        let text = told(3, "gpu refused 3", |_| vec![("EMU_NO_PEER", pair)]);
        let of = |rank: u32| format!("GPU {rank} (NVIDIA H200 (emulated)) of rank {rank}");
        let words = format!("MACO0100: {} cannot access the memory of {}, but the other way it could", of(rank), of(peer));
        assert!(text.starts_with(&format!("MACO0096: rank {rank} failed at `share memory of GPUs`")) && text.contains(&words), "{text}");
    }
    // Of GPUs that no rank has it does not matter.
    assert_eq!(told(2, "gpu exchange 2", |_| vec![("EMU_NO_PEER", "0>2,2>1")]), "");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_parts_of_a_gpu_are_named() {
    if !is_emulated() || !are_there(2) {
        return;
    }
    let [whole, part] = ["NVIDIA H200 (emulated)", "NVIDIA H200 MIG 1g.18gb (emulated)"];
    let because = ": it is a part of a GPU (MIG), and parts have no peer access";
    let words = |own: &str, other: &str| format!("GPU 0 ({own}) of rank 0 cannot access the memory of GPU 1 ({other}) of rank 1{because}");
    let text = told(2, "gpu refused 2", |_| vec![("EMU_MIG", "1")]);
    assert!(text.starts_with("MACO0096: ranks 0 and 1 failed at `share memory of GPUs`") && text.contains(&words(part, part)), "{text}");
    // One of both is enough, whichever it is.
    for (of, own, other) in [(0, part, whole), (1, whole, part)] {
        let text = told(2, "gpu refused 2", |rank| vec![("EMU_MIG", if rank == of { "1" } else { "0" })]);
        assert!(text.starts_with("MACO0096: ranks 0 and 1 failed") && text.contains(&words(own, other)), "{text}");
    }
    // Ranks that have one part together need no peers.
    assert_eq!(told(2, "gpu exchange 1", |_| vec![("EMU_MIG", "1")]), "");
}

/// As with a `CUDA_VISIBLE_DEVICES` of each process: whether a GPU can be mapped that a process does not see is found by doing it.
#[test]
#[ignore = "needs a GPU"]
fn gpu_one_that_is_not_seen_is_tried() {
    if !is_emulated() {
        return;
    }
    let seen = |rank| ("EMU_GPUS", if rank == 0 { "1" } else { "2" });
    assert_eq!(told(2, "gpu exchange 2", |rank| vec![seen(rank)]), "");
    let text = told(2, "gpu refused 2", |rank| vec![seen(rank), ("EMU_NO_PEERS", if rank == 0 { "1" } else { "0" })]);
    assert!(text.starts_with("MACO0096: rank 0 failed at `map memory of GPUs`"), "{text}");
    let words = "the memory of rank 1, on GPU 1 (NVIDIA H200 (emulated)), could not be mapped for GPU 0 (NVIDIA H200 (emulated)";
    assert!(text.contains(words) && text.contains("cuMemSetAccess"), "{text}");
}
