"""What PyTorch's sides of the benches have in common: timing, capture, and the talk with the bench.

A script greets with a line of JSON, then answers every line of JSON on its input with one: a request says what to run, and in `rounds` how
many times are wanted; the answer has so many in microseconds of one run, or an error. What was asked for last stays prepared, so that
rounds may come in blocks.
"""

import json
import os
import statistics
import sys

import torch


def time(graph, sets, rounds):
    """Microseconds of one run, `rounds` times."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(rounds):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / sets)
    return times


def capture(run, operands):
    """A CUDA graph in which every set of operands has its turn, warm."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for arguments in operands:
            run(*arguments)
    torch.cuda.current_stream().wait_stream(side)
    graph, kept = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        # Results stay until all are made, so that each has memory of its own.
        kept.extend(run(*arguments) for arguments in operands)
    time(graph, len(operands), 20)
    return graph, kept


def fastest(name, run, operands, compile):
    """A CUDA graph of `run` on every set of operands, or of what `torch.compile` makes of it if that is wanted and faster."""
    captured = capture(run, operands)
    if compile:
        try:
            compiled = capture(torch.compile(run, dynamic=False), operands)
            captured = min((captured, compiled), key=lambda candidate: statistics.median(time(candidate[0], len(operands), 10)))
        except Exception as error:  # no compiler, or not for this operation
            print(f"{name}: not compiled: {type(error).__name__}", file=sys.stderr)
    return captured


def serve(gpu, prepare):
    """Answers requests: `prepare` makes of one what has a `replay`, how many runs that is, and what must live as long."""
    # Answers have the output to themselves: what else is printed goes where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.cuda.set_device(gpu)
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name()}), file=answers, flush=True)
    key, prepared = None, None
    for line in sys.stdin:
        request = json.loads(line)
        rounds = request.pop("rounds")
        try:
            if request != key:
                key = prepared = None
                torch.cuda.empty_cache()
                prepared = prepare(request)
                key = request
            graph, runs, _kept = prepared
            time(graph, runs, 2)
            answer = {"microseconds": time(graph, runs, rounds)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


def main(prepare, check):
    """`check` runs everything once on the CPU; otherwise the argument is the number of the GPU to serve on."""
    if sys.argv[1] == "check":
        check()
    else:
        serve(int(sys.argv[1]), prepare)
