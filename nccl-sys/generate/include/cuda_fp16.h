/* NCCL's header includes this one and uses nothing of it. */
