//! What is called otherwise is planned, runs on a CPU and on a GPU, and has device code.

use m::Device;
use names::{renamed, through};

fn runs(device: &Device) {
    let (rows, columns) = (70, 33);
    let x: Vec<f32> = (0..rows * columns).map(|v| v as f32).collect();
    let uploaded = device.upload(&x, [rows, columns]).unwrap();
    let mut y = device.zeros::<f32>([rows, columns]).unwrap();

    let plan = renamed::größer::plan(device, renamed::größer::Dims { M: rows, r#where: columns }).unwrap();
    plan.run(&uploaded, &mut y).unwrap();
    assert_eq!(y.download().unwrap(), x.iter().map(|v| 2.0 * (v + 1.0)).collect::<Vec<_>>());

    let plan = renamed::r#do::plan(device, renamed::r#do::Dims { M: rows, N: columns }).unwrap();
    plan.run(&uploaded, &mut y).unwrap();
    assert_eq!(y.download().unwrap(), x.iter().map(|v| v + 3.0).collect::<Vec<_>>());

    let plan = through::lower_twice::plan(device, through::lower_twice::Dims { M: 70 }).unwrap();
    let column = |at: usize| device.upload(&x[70 * at..70 * (at + 1)], [70]).unwrap();
    let mut results = [device.zeros::<f32>([70]).unwrap(), device.zeros::<f32>([70]).unwrap()];
    plan.run(&[column(0), column(1)], &mut results).unwrap();
    for (at, result) in results.iter().enumerate() {
        let expected: Vec<f32> = x[70 * at..70 * (at + 1)].iter().map(|v| v - 2.0).collect();
        assert_eq!(result.download().unwrap(), expected);
    }
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

/// Names of other letters come out of PTX's, and keywords without their `r#`.
#[test]
fn device_code_is_embedded() {
    let code = std::fs::read_to_string(std::path::Path::new(names::OUT_DIR).join("maco.ptx"));
    match code {
        Ok(ptx) => {
            assert!(ptx.is_ascii());
            for entry in ["maco_gr__er_", "maco_do_", "maco_set_", "maco_lower_twice_"] {
                assert!(ptx.contains(&format!(".visible .entry {entry}")), "{entry} is missing");
            }
        }
        Err(_) => println!("left out: no device toolchain, or MACO_DEVICE is set"),
    }
}
