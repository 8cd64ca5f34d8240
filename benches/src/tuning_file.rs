//! The tuning file that all kinds of tuning add to.

use std::path::Path;

use anyhow::ensure;
use maco::{Device, Tuning};

/// What there is already.
pub fn opened(path: Option<&Path>, device: &Device) -> anyhow::Result<Tuning> {
    let tuning = match path {
        Some(path) if path.exists() => Tuning::read(path)?,
        _ => Tuning::new(device),
    };
    ensure!(tuning.device == device.model(), "the file is for `{}`, and this is `{}`", tuning.device, device.model());
    Ok(tuning)
}
