//! GPUs by their names, for `--gpu`.

use super::GpuKind;
use crate::base::units::Bytes;

/// Names, and the MiB of memory that nvidia-smi reports.
const GPUS: &[(&str, u64)] = &[
    ("B200", 183_359),
    ("H200", 143_771),
    ("GH200", 97871),
    ("H100 NVL", 95830),
    ("H100", 81559),
    ("A100 80GB", 81920),
    ("A100 40GB", 40960),
    ("A40", 46068),
    ("A30", 24576),
    ("A10G", 23028),
    ("A10", 23028),
    ("L40S", 46068),
    ("L40", 46068),
    ("L4", 23034),
    ("T4", 15360),
    ("V100 32GB", 32768),
    ("V100 16GB", 16384),
    ("P100", 16384),
    ("RTX PRO 6000", 97887),
    ("RTX 6000 Ada", 49140),
    ("RTX A6000", 49140),
    ("RTX A5000", 24564),
    ("RTX A4000", 16376),
    ("RTX 5090", 32607),
    ("RTX 5080", 16303),
    ("RTX 4090", 24564),
    ("RTX 4080", 16376),
    ("RTX 4070", 12282),
    ("RTX 4060 Ti 16GB", 16380),
    ("RTX 3090", 24576),
    ("RTX 3080", 10240),
    ("RTX 3060", 12288),
    ("RTX 2080 Ti", 11264),
    ("GTX 1080 Ti", 11264),
];

/// Returns the GPU with a name such as `RTX 4090` or `nvidia a100-80gb`.
pub(super) fn parse(text: &str) -> Result<GpuKind, String> {
    let wanted = letters(text);
    let fits = |name: &&(&str, u64)| letters(name.0) == wanted;
    let near: Vec<&(&str, u64)> = GPUS
        .iter()
        .filter(|(name, _)| !wanted.is_empty() && letters(name).contains(&wanted))
        .collect();
    match (GPUS.iter().find(fits), near.as_slice()) {
        (Some((name, mib)), _) | (None, [(name, mib)]) => Ok(GpuKind {
            name: (*name).to_owned(),
            memory: Bytes(mib << 20),
            count: 1,
        }),
        (None, []) => Err(format!(
            "gputop knows no GPU of this name: give its memory with --gpu-memory, or one of {}",
            names(GPUS)
        )),
        (None, near) => Err(format!(
            "several GPUs have this name: {}",
            names(near.iter().copied())
        )),
    }
}

/// The letters and digits of a name, without the words that every name may have.
fn letters(name: &str) -> String {
    name.to_lowercase()
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !matches!(*word, "nvidia" | "geforce" | "tesla" | "quadro"))
        .collect()
}

fn names<'a>(gpus: impl IntoIterator<Item = &'a (&'a str, u64)>) -> String {
    let names: Vec<&str> = gpus.into_iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Result<(String, u64), String> {
        parse(text).map(|gpu| (gpu.name, gpu.memory.0 >> 20))
    }

    #[test]
    fn every_name_is_found() {
        for (name, mib) in GPUS {
            assert_eq!(found(name), Ok(((*name).to_owned(), *mib)));
        }
    }

    #[test]
    fn a_name_may_be_written_as_nvidia_smi_writes_it() {
        for (text, name) in [
            ("NVIDIA GeForce RTX 4090", "RTX 4090"),
            ("rtx4090", "RTX 4090"),
            ("4090", "RTX 4090"),
            ("a100-80gb", "A100 80GB"),
            ("Tesla T4", "T4"),
            ("h100", "H100"),
        ] {
            assert_eq!(found(text).map(|(name, _)| name), Ok(name.to_owned()));
        }
    }

    #[test]
    fn an_unclear_name_gets_the_names() {
        assert_eq!(
            found("V100"),
            Err("several GPUs have this name: V100 32GB, V100 16GB".to_owned())
        );
        for text in ["RTX 9999", "", "NVIDIA"] {
            assert!(
                found(text).unwrap_err().starts_with("gputop knows no GPU"),
                "{text}"
            );
        }
    }
}
