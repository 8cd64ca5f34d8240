//! What ranks print, line by line, so that lines of two ranks do not mix.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::Sender;
use std::thread;

/// Longest line that is kept together.
const LONGEST: u64 = 64 << 10;

/// Copies `from` to `to` until it ends; `ended` learns of it by being dropped.
pub fn copy(from: impl Read + Send + 'static, prefix: String, to: fn() -> Box<dyn Write>, ended: Sender<()>) -> io::Result<()> {
    thread::Builder::new().name("output".into()).spawn(move || {
        let _ended = ended;
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            line.extend_from_slice(prefix.as_bytes());
            match (&mut from).take(LONGEST).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            // One at a time; to a reader that is gone it goes no further, and the rank learns of it.
            static LINES: Mutex<()> = Mutex::new(());
            let _one = LINES.lock();
            let mut to = to();
            if to.write_all(&line).and_then(|()| to.flush()).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
