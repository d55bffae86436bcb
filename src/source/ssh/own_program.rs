//! The file of this program, for copies on other hosts: its hash, and what it needs of a host.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use tokio::sync::{OnceCell, oneshot};

use super::first_contact::GlibcVersion;

/// This program, which is there even if its file was removed or replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The file of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnProgram {
    /// The path to read the file from.
    pub(super) path: PathBuf,
    /// The SHA-256 in hexadecimal digits.
    pub(super) hash: String,
    /// The size in bytes.
    pub(crate) size: u64,
    /// The machine, as `uname -m` prints it; `None` for one that gputop does not know.
    pub(super) machine: Option<&'static str>,
    /// The oldest glibc that the program runs with; `None` if it needs none.
    pub(super) glibc: Option<GlibcVersion>,
}

impl OwnProgram {
    /// The version of this program.
    pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Returns this program. Reads its file the first time, in a thread: its folder may hang.
    pub(crate) async fn get() -> Result<Arc<Self>, String> {
        static PROGRAM: OnceCell<Result<Arc<OwnProgram>, String>> = OnceCell::const_new();
        let read = || async {
            let (sender, receiver) = oneshot::channel();
            std::thread::Builder::new()
                .name("own-program".to_owned())
                .spawn(move || {
                    let program = Self::read(Path::new(THIS_PROGRAM));
                    // Nobody waits any more when gputop ends.
                    let _ended = sender.send(program);
                })
                .map_err(|error| format!("cannot start a thread: {error}"))?;
            let program = receiver.await.map_err(|error| error.to_string())?;
            program
                .map(Arc::new)
                .map_err(|error| format!("cannot read the file of gputop: {error}"))
        };
        PROGRAM.get_or_init(read).await.clone()
    }

    fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut context = Context::new(&SHA256);
        let mut buffer = vec![0; 64 << 10];
        let mut size = 0;
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            context.update(&buffer[..length]);
            size += length as u64;
        }
        let hash = context.finish();
        let elf = ElfFile { file, size };
        let header = elf.bytes(0, 64)?;
        Ok(Self {
            path: path.to_owned(),
            hash: HexDigits(hash.as_ref()).to_string(),
            size,
            machine: match number::<2>(&header, 18) {
                21 => Some("ppc64le"),
                62 => Some("x86_64"),
                183 => Some("aarch64"),
                243 => Some("riscv64"),
                _ => None,
            },
            glibc: elf.glibc(&header)?,
        })
    }

    /// The name of a copy, in which the version comes before the hash.
    pub(crate) fn copy_name(&self) -> String {
        format!("{}-{}", Self::VERSION, self.hash)
    }

    /// Returns an error if a copy cannot run on a host, by the output of `uname -sm` there and its
    /// glibc: a sentence that says what to install there.
    pub(crate) fn check_runs_on(
        &self,
        system: &str,
        glibc: Option<GlibcVersion>,
    ) -> Result<(), String> {
        let machine = self.machine.unwrap_or("another machine");
        if system != format!("Linux {machine}") {
            return Err(match system.strip_prefix("Linux ") {
                Some(other) => format!(
                    "no gputop there, and this one is for {machine}: install gputop for {other} there"
                ),
                None => format!("no gputop there, and it does not run on {system}"),
            });
        }
        match (self.glibc, glibc) {
            (None, _) => Ok(()),
            (Some(needed), Some(there)) if needed <= there => Ok(()),
            (Some(needed), Some(there)) => Err(format!(
                "no gputop there, and this one needs glibc {needed}, not {there}: install a release of gputop there, which \
                 needs glibc 2.17"
            )),
            (Some(_), None) => {
                Err("no gputop there, and it needs glibc, which that host does not have".to_owned())
            }
        }
    }
}

/// Bytes as hexadecimal digits.
struct HexDigits<'a>(&'a [u8]);

impl fmt::Display for HexDigits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A program file of 64 bits, with its lowest byte first.
struct ElfFile {
    file: File,
    size: u64,
}

impl ElfFile {
    /// The type of a section with the versions that are needed of libraries.
    const NEEDED_VERSIONS: u64 = 0x6fff_fffe;

    /// The most bytes of a section that are read.
    const LONGEST_SECTION: u64 = 4 << 20;

    fn bytes(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let end = offset.checked_add(length);
        if length > Self::LONGEST_SECTION || end.is_none_or(|end| end > self.size) {
            return Err(io::Error::other("it is no program"));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Returns the oldest glibc that has all versions of symbols that the program needs.
    fn glibc(&self, header: &[u8]) -> io::Result<Option<GlibcVersion>> {
        let sections = self.bytes(
            number::<8>(header, 40),
            number::<2>(header, 58) * number::<2>(header, 60),
        )?;
        let entry_size = usize::try_from(number::<2>(header, 58).max(64)).unwrap_or(64);
        let sections: Vec<&[u8]> = sections.chunks_exact(entry_size).collect();
        let content =
            |section: &[u8]| self.bytes(number::<8>(section, 24), number::<8>(section, 32));
        let needed = sections
            .iter()
            .find(|section| number::<4>(section, 4) == Self::NEEDED_VERSIONS);
        let Some(needed) = needed else {
            return Ok(None);
        };
        let names = usize::try_from(number::<4>(needed, 40)).unwrap_or(usize::MAX);
        let Some(names) = sections.get(names) else {
            return Ok(None);
        };
        let (needed, names) = (content(needed)?, content(names)?);
        Ok(version_names(&needed, &names).filter_map(glibc_of).max())
    }
}

/// The names of all versions of symbols that a program needs.
fn version_names<'a>(needed: &'a [u8], names: &'a [u8]) -> impl Iterator<Item = &'a str> {
    let mut library = Some(0);
    let mut version = None;
    // Each version takes 16 bytes, so a circle of offsets ends here.
    let mut steps_left = needed.len() / 8;
    std::iter::from_fn(move || {
        let next = |at: usize, field: usize| {
            let distance = usize::try_from(number::<4>(needed, at + field)).unwrap_or(0);
            (distance > 0).then_some(at + distance)
        };
        loop {
            steps_left = steps_left.checked_sub(1)?;
            let Some(at) = version else {
                let at = library?;
                version = next(at, 8);
                library = next(at, 12);
                continue;
            };
            version = next(at, 12);
            let name = usize::try_from(number::<4>(needed, at + 8)).ok()?;
            let name = names.get(name..)?.split(|byte| *byte == 0).next()?;
            return Some(str::from_utf8(name).unwrap_or_default());
        }
    })
}

/// Returns the glibc that first has a version of symbols, such as `GLIBC_2.17`.
fn glibc_of(version: &str) -> Option<GlibcVersion> {
    match version.strip_prefix("GLIBC_")? {
        "ABI_DT_RELR" => GlibcVersion::parse("2.36"),
        number => GlibcVersion::parse(number),
    }
}

/// Returns the number of this many bytes at an offset; 0 behind the end.
fn number<const LENGTH: usize>(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..offset + LENGTH)
        .unwrap_or_default()
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_hash_and_the_machine_are_those_of_the_file() {
        let path = std::env::current_exe().unwrap();
        let program = OwnProgram::read(&path).unwrap();
        let sum = Command::new("sha256sum").arg(&path).output().unwrap();
        assert!(
            String::from_utf8(sum.stdout)
                .unwrap()
                .starts_with(&program.hash)
        );
        let machine = Command::new("uname").arg("-m").output().unwrap();
        assert_eq!(
            program.machine.unwrap(),
            String::from_utf8(machine.stdout).unwrap().trim()
        );
        // This program runs here.
        let here = Command::new("getconf")
            .arg("GNU_LIBC_VERSION")
            .output()
            .unwrap();
        let here = GlibcVersion::parse(String::from_utf8(here.stdout).unwrap().trim()).unwrap();
        let needed = program.glibc.unwrap();
        assert!(
            needed.major == 2 && needed.minor >= 17 && needed <= here,
            "{needed}"
        );
    }

    #[test]
    fn this_program_is_read_once() {
        crate::source::tests::run(async {
            let program = OwnProgram::get().await.unwrap();
            assert!(program.copy_name().ends_with(&program.hash));
            assert!(Arc::ptr_eq(&program, &OwnProgram::get().await.unwrap()));
        });
    }

    #[test]
    fn a_file_that_is_no_program_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for bytes in [vec![], vec![b'x'; 64], vec![0xff; 4096]] {
            std::fs::write(file.path(), &bytes).unwrap();
            assert!(
                OwnProgram::read(file.path()).is_err(),
                "{} bytes",
                bytes.len()
            );
        }
    }

    #[test]
    fn a_host_that_cannot_run_a_copy_is_told_with_what_to_install() {
        let program = OwnProgram {
            path: PathBuf::new(),
            hash: String::new(),
            size: 0,
            machine: Some("x86_64"),
            glibc: GlibcVersion::parse("2.34"),
        };
        let check =
            |system: &str, glibc: &str| program.check_runs_on(system, GlibcVersion::parse(glibc));
        assert_eq!(check("Linux x86_64", "glibc 2.34"), Ok(()));
        for (system, glibc, sentence) in [
            (
                "Linux aarch64",
                "glibc 2.36",
                "this one is for x86_64: install gputop for aarch64 there",
            ),
            ("Darwin arm64", "", "does not run on Darwin arm64"),
            (
                "Linux x86_64",
                "glibc 2.17",
                "needs glibc 2.34, not 2.17: install a release",
            ),
            ("Linux x86_64", "musl libc (x86_64)", "it needs glibc"),
        ] {
            let error = check(system, glibc).unwrap_err();
            assert!(error.contains(sentence), "{error}");
        }
    }
}
