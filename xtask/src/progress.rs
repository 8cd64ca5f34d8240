//! A moving line for work that prints nothing itself; plain lines where there is no terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::ProgressBar;

/// Does the work while a line says what it is.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        eprintln!("{what} …");
        return work();
    }
    let line = ProgressBar::new_spinner().with_message(what.to_owned());
    line.enable_steady_tick(Duration::from_millis(100));
    let result = work();
    line.finish_and_clear();
    result
}
