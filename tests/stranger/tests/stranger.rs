//! A package outside of any workspace builds, and runs on a CPU and on a GPU.

use maco::Device;
use stranger::kernels::raised_and_doubled;

fn runs(device: &Device) {
    let (m, n) = (70, 33);
    let x: Vec<f32> = (0..m * n).map(|v| v as f32).collect();
    let plan = raised_and_doubled::plan(device, raised_and_doubled::Dims { M: m, N: n }).unwrap();
    let mut y = device.zeros::<f32>([m, n]).unwrap();
    plan.run(&device.upload(&x, [m, n]).unwrap(), &mut y).unwrap();
    let expected: Vec<f32> = x.iter().map(|v| 2.0 * (v + 1.0)).collect();
    assert_eq!(y.download().unwrap(), expected);
}

#[test]
fn runs_on_a_cpu() {
    runs(&Device::cpu());
}

#[test]
#[ignore = "gpu"]
fn gpu_runs() {
    runs(&Device::gpu(0).unwrap());
}

/// The device half was built beside the host half, unless there is no compiler for it.
#[test]
fn device_code_is_embedded() {
    let code = std::fs::read_to_string(std::path::Path::new(stranger::OUT_DIR).join("maco.ptx"));
    match code {
        Ok(ptx) => assert!(ptx.contains(".visible .entry maco_raised_and_doubled_"), "{ptx}"),
        Err(_) => println!("left out: no device toolchain, or MACO_DEVICE is set"),
    }
}
