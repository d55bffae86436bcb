//! Files of settings that are read whole, such as those with certificates.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// Reads a file of text that belongs to the settings, such as one with a certificate.
///
/// # Errors
///
/// When it cannot be read, or is larger than a MiB: a sentence that names the file.
pub(crate) fn read_small_file(path: &Path) -> Result<String, String> {
    let describe = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text))
        .map_err(describe)?;
    if text.len() as u64 > LARGEST {
        return Err(format!("{} is larger than a MiB", path.display()));
    }
    Ok(text)
}
