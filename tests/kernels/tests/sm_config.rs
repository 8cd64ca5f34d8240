//! Plans of one megakernel that have other workers for its tasks, launched in turn: the same results, and a switch costs no more than a launch.
mod support;

use std::time::{Duration, Instant};

use kernels::readme::mlp;
use maco::{Arguments, Device, PlanOptions, SmConfig, Stream, Tensor, bf16};
use support::{Matrix, poisoned};

on_every_device!(configurations_take_turns);

const DIMS: mlp::Dims = mlp::Dims { M: 70, K: 40, H: 130 };

/// Two configurations of all workers: any for every task, and a half each for the two kinds of tasks.
fn plans(device: &Device) -> [mlp::Plan; 2] {
    let workers = device.workers();
    let halves = match workers {
        1 => SmConfig::automatic(),
        _ => SmConfig::automatic().tasks(&["linear"], 0..workers / 2).tasks(&["bias_relu"], workers / 2..workers),
    };
    [SmConfig::automatic(), halves].map(|sms| mlp::plan_with(device, DIMS, &PlanOptions::new().sms(sms)).unwrap())
}

struct Case {
    x: Tensor<bf16>,
    up: Tensor<bf16>,
    b: Tensor<bf16>,
    down: Tensor<bf16>,
    expected: Matrix,
}

fn case(device: &Device) -> Case {
    let (m, k, h) = (DIMS.M as usize, DIMS.K as usize, DIMS.H as usize);
    let (x, up, down) = (Matrix::integers(m, k, 1, 1), Matrix::sparse(h, k, 2), Matrix::sparse(k, h, 3));
    let bias = Matrix::integers(1, h, 4, 3);
    let b: Vec<bf16> = bias.data.iter().map(|&v| bf16::from_f64(v)).collect();
    let hidden = x.times(&up.t());
    let hidden = Matrix::new(m, h, |r, c| (hidden.at(r, c) + bias.at(0, c)).max(0.0));
    let expected = hidden.times(&down.t()).bf16();
    Case { x: x.upload(device), up: up.upload(device), b: device.upload(&b, [DIMS.H]).unwrap(), down: down.upload(device), expected }
}

fn configurations_take_turns(device: &Device) {
    let (case, plans) = (case(device), plans(device));
    for launch in 0..6 {
        let mut y = poisoned::<bf16>(device, DIMS.M as usize, DIMS.K as usize);
        plans[launch % 2].run(&case.x, &case.up, &case.b, &case.down, &mut y).unwrap();
        case.expected.exactly(&y, &format!("launch {launch}"));
    }
}

/// Bound launches on one stream: 200 of the one plan, 200 of the other, and 200 in turn. The shortest of ten rounds each.
#[test]
#[ignore = "gpu"]
fn a_switch_costs_no_more_than_a_launch() {
    let device = Device::gpu(0).expect("a GPU");
    let (case, plans) = (case(&device), plans(&device));
    let mut y = [(); 2].map(|()| poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize));
    let stream = Stream::new(&device).unwrap();
    let bound: Vec<_> = plans
        .iter()
        .zip(&mut y)
        .map(|(plan, y)| {
            plan.bind(Arguments::new().tensor(&case.x).tensor(&case.up).tensor(&case.b).tensor(&case.down).tensor_mut(y)).unwrap()
        })
        .collect();
    let time = |which: &dyn Fn(usize) -> usize| {
        let round = || {
            let begin = Instant::now();
            (0..200).for_each(|launch| bound[which(launch)].launch_on(&stream).unwrap());
            stream.synchronize().unwrap();
            begin.elapsed()
        };
        round();
        (0..10).map(|_| round()).min().unwrap_or(Duration::MAX)
    };
    let (one, other, turns) = (time(&|_| 0), time(&|_| 1), time(&|launch| launch % 2));
    println!("200 launches: {one:?} of the one, {other:?} of the other, {turns:?} in turn");
    // A launch more for each switch would be twice the mean.
    assert!(turns < (one + other) * 3 / 4, "{turns:?} in turn, {one:?} and {other:?} alone");
    drop(bound);
    y.iter().for_each(|y| case.expected.exactly(y, "in turn"));
}
