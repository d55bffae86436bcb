//! Files of settings that are read whole, such as those with certificates.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The largest file that is read, in bytes.
const LARGEST: usize = 1 << 20;

/// How long a program may take to write the next bytes into a pipe: `<(command)` of a shell may be one
/// that asks for a password.
const LONGEST_WAIT: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// Reads a file of text that belongs to the settings, such as one with a certificate.
///
/// # Errors
///
/// When it cannot be read, is larger than a MiB, or is a pipe that nothing comes from: a sentence
/// that names the file.
pub(crate) fn read_small_file(path: &Path) -> Result<String, String> {
    read_bytes(path)
        .and_then(|bytes| {
            String::from_utf8(bytes)
                .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8"))
        })
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe would wait until a program opens it to write.
    let flags = libc::O_NONBLOCK;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let mut bytes = Vec::new();
    loop {
        match (&mut file)
            .take((LARGEST + 1 - bytes.len()) as u64)
            .read_to_end(&mut bytes)
        {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(&file)?,
            Err(error) => return Err(error),
        }
    }
    if bytes.len() > LARGEST {
        return Err(io::Error::other("it is larger than a MiB"));
    }
    if bytes.is_empty() && file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other(
            "it is a pipe, and no program writes into it",
        ));
    }
    Ok(bytes)
}

/// Waits for the next bytes of a pipe, or its end.
fn wait(file: &File) -> io::Result<()> {
    let mut comes = [PollFd::new(file, PollFlags::IN)];
    match poll(&mut comes, Some(&LONGEST_WAIT)) {
        Ok(0) => Err(io::Error::other(
            "the program that writes into this pipe has written nothing for 30 s",
        )),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::thread;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_and_refused_without_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let why = read_small_file(&path).unwrap_err();
        assert!(
            why.starts_with("cannot read /") && why.ends_with("no program writes into it"),
            "{why}"
        );
        // A writer that also reads need not wait for a reader.
        let mut writer = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        writer.write_all(b"one ").unwrap();
        let reader = thread::spawn(move || read_small_file(&path));
        writer.write_all(b"two").unwrap();
        // Both pieces are in the pipe until the reader takes them.
        while rustix::io::ioctl_fionread(&writer).unwrap() > 0 {
            thread::yield_now();
        }
        drop(writer);
        assert_eq!(reader.join().unwrap().as_deref(), Ok("one two"));
    }

    #[test]
    fn a_file_that_is_too_large_or_no_text_is_refused_with_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (bytes, expected) in [
            (vec![b'x'; LARGEST + 1], "it is larger than a MiB"),
            (vec![0xff], "it is not text in UTF-8"),
        ] {
            fs::write(&path, bytes).unwrap();
            let why = read_small_file(&path).unwrap_err();
            assert_eq!(why, format!("cannot read {}: {expected}", path.display()));
        }
        fs::write(&path, vec![b'x'; LARGEST]).unwrap();
        assert_eq!(read_small_file(&path).map(|text| text.len()), Ok(LARGEST));
    }
}
