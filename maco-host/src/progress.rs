//! What is told of work that takes long and prints nothing itself: nothing at first, then a line on standard error, which moves on a terminal.

use std::io::IsTerminal;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How long nothing is said.
const SILENT: Duration = Duration::from_secs(2);

/// Does the work; if it takes over two seconds, says what it is until it ends.
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let terminal = std::io::stderr().is_terminal();
    watched(SILENT, work, |begun, ended| {
        if !terminal {
            eprintln!("{what} …");
            let _ = ended.recv(); // the other end is dropped when the work ends, also by a panic
            eprintln!("{what}: {:.1} s", begun.elapsed().as_secs_f64());
            return;
        }
        let line = ProgressBar::new_spinner().with_elapsed(begun.elapsed()).with_message(what.to_owned());
        line.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
        line.enable_steady_tick(Duration::from_millis(100));
        let _ = ended.recv();
        line.finish_and_clear();
    })
}

/// Does the work; after `silent` another thread runs `tell` with when it begun, and what is closed when the work has ended.
fn watched<T>(silent: Duration, work: impl FnOnce() -> T, tell: impl FnOnce(Instant, &mpsc::Receiver<()>) + Send) -> T {
    let begun = Instant::now();
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // Without a thread nothing is said.
        let _ = thread::Builder::new().spawn_scoped(scope, move || {
            if ended.recv_timeout(silent) == Err(mpsc::RecvTimeoutError::Timeout) {
                tell(begun, &ended);
            }
        });
        let _end = end;
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threads of `watched` have ended when it returns.
    fn told(work: Duration) -> bool {
        let mut told = false;
        let result = watched(
            Duration::from_millis(50),
            || {
                thread::sleep(work);
                7
            },
            |begun, ended| {
                told = begun.elapsed() >= Duration::from_millis(50);
                assert!(ended.recv().is_err(), "until the work ends");
                assert!(begun.elapsed() >= work, "not before it ends");
            },
        );
        assert_eq!(result, 7);
        told
    }

    #[test]
    fn only_of_work_that_takes_long_something_is_said() {
        assert!(!told(Duration::ZERO));
        assert!(told(Duration::from_millis(300)));
    }
}
