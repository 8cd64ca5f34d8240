//! A safe body that never ends: the error names it on every device, its plan stays lost, and the process ends.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kernels::endless::{fine, hang};
use maco::{Device, PlanOptions, Stream};

const M: u64 = 4096;
/// Set for a process of its own, to how the launch is waited for.
const INNER: &str = "MACO_TEST_ENDLESS_BODY";
/// `stream`: queued, and nothing waits for it but its stream.
const WAITS: [&str; 2] = ["run", "stream"];

#[test]
fn an_endless_body_is_named_on_a_cpu() {
    in_processes("an_endless_body_is_named_on_a_cpu", || Device::cpu_with(2));
}

#[test]
#[ignore = "gpu"]
fn gpu_an_endless_body_is_named() {
    in_processes("gpu_an_endless_body_is_named", || Device::gpu(0).expect("a GPU"));
}

/// Runs the test again in processes of its own: the device stays lost, or a thread goes on.
fn in_processes(test: &str, device: impl Fn() -> Device) {
    if let Ok(wait) = std::env::var(INNER) {
        lose(&device(), &wait);
        println!("lost as expected");
        return;
    }
    let children = WAITS.map(|wait| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(INNER, wait).env_remove("MACO_DEADLINE_SCALE");
        // The emulated GPU's time is not the host's: a task is given up before the launch is.
        command.envs([("EMU_LIMIT_MS", "1000000000"), ("EMU_TICK", "1000")]).stdout(Stdio::piped()).stderr(Stdio::piped());
        (wait, command.spawn().unwrap(), Instant::now())
    });
    for (wait, child, begin) in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("lost as expected"),
            "{wait}: {text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(begin.elapsed() < Duration::from_secs(120), "{wait}: the process took {:?}", begin.elapsed());
    }
}

fn lose(device: &Device, wait: &str) {
    let (x, mut y) = (device.zeros::<f32>([M]).unwrap(), device.zeros::<f32>([M]).unwrap());
    let other = fine::plan(device, fine::Dims { M }).unwrap();
    other.run(&x, &mut y).unwrap();
    assert_eq!(y.download().unwrap(), [1.0; M as usize]);
    // On a CPU a body may take many of them.
    let deadline = Duration::from_millis(if device.is_gpu() { 2000 } else { 100 });
    let plan = hang::plan_with(device, hang::Dims { M }, &PlanOptions::new().workers(2).deadline(deadline)).unwrap();
    let lost = if device.is_gpu() { 49 } else { 92 };
    let stream = Stream::new(device).unwrap();
    let error = match wait {
        "stream" => match plan.run_on(&stream, &x, &mut y) {
            Ok(pending) => {
                drop(pending);
                stream.synchronize().unwrap_err()
            }
            // A CPU queues nothing.
            Err(error) => error,
        },
        _ => plan.run(&x, &mut y).unwrap_err(),
    };
    assert_eq!(error.code(), lost, "{error}");
    let text = error.to_string();
    assert!(text.contains("megakernel `hang`: task `forever` tile [") && text.contains("(call #0) did not end within"), "{text}");
    assert_eq!(plan.run(&x, &mut y).unwrap_err().code(), lost);
    assert_eq!(plan.recover().unwrap_err().code(), lost);
    assert_eq!(y.download().unwrap_err().code(), lost);
    // A GPU is lost as a whole; on a CPU other plans and other tensors go on.
    if device.is_gpu() {
        assert_eq!(other.run(&x, &mut y).unwrap_err().code(), lost);
    } else {
        let (x, mut y) = (device.zeros::<f32>([M]).unwrap(), device.zeros::<f32>([M]).unwrap());
        other.run(&x, &mut y).unwrap();
        assert_eq!(y.download().unwrap(), [1.0; M as usize]);
    }
}
