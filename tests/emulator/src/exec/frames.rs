//! Frames of launches that have ended, by their size: new memory from the system costs more than most launches.

static ENDED: std::sync::Mutex<Vec<Vec<u64>>> = std::sync::Mutex::new(Vec::new());

pub fn take(words: usize) -> Vec<Vec<u64>> {
    let mut all = ENDED.lock().unwrap_or_else(|error| error.into_inner());
    all.extract_if(.., |frame| frame.len() == words).collect()
}

pub fn give(frames: Vec<Vec<u64>>) {
    let mut all = ENDED.lock().unwrap_or_else(|error| error.into_inner());
    all.extend(frames);
    // The oldest go first; four gigabytes stay, of which mostly a small part was ever touched.
    let mut words: usize = all.iter().map(Vec::len).sum();
    let mut old = 0;
    while words > 512 << 20 {
        words -= all[old].len();
        old += 1;
    }
    all.drain(..old);
}
