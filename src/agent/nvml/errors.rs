//! Classifies errors of NVML, and describes the trouble of a GPU or of the driver in a sentence for
//! the user.

use nvml_wrapper::error::NvmlError;

use super::driver_versions;
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::snapshot::{Cause, GpuFacts, Missing, Trouble};

/// Whether an error concerns the whole GPU or the driver, not only this call.
pub(super) fn is_fatal(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost) || concerns_driver(error)
}

/// Whether an error concerns the driver: then no call to any GPU can succeed.
pub(super) fn concerns_driver(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch
    )
}

/// Whether an error is an unexpected failure of one call. Normal answers, missing support and
/// missing permission are not.
pub(super) fn is_partial(error: &NvmlError) -> bool {
    // These three are answers: no event came, no process was active, the buffer was too small.
    let is_answer = matches!(
        error,
        NvmlError::Timeout | NvmlError::NotFound | NvmlError::InsufficientSize(_)
    );
    !is_answer && !is_fatal(error) && missing(error) == Missing::Failed
}

/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH`, which nvml-wrapper does not name, like the two below.
const VERSION_MISMATCH: u32 = 25;
/// `NVML_ERROR_DEPRECATED`.
pub(super) const DEPRECATED: u32 = 26;
/// `NVML_ERROR_GPU_NOT_FOUND`: the driver runs but finds no GPU.
const NO_GPU: u32 = 28;

pub(super) fn missing(error: &NvmlError) -> Missing {
    match error {
        NvmlError::NotSupported
        | NvmlError::VgpuEccNotSupported
        | NvmlError::FunctionNotFound
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::UnexpectedVariant(VERSION_MISMATCH | DEPRECATED) => Missing::Unsupported,
        NvmlError::NoPermission => Missing::Denied,
        // All other errors are failures, also those that later drivers add.
        _ => Missing::Failed,
    }
}

/// Names a GPU in a sentence: `GPU 3 (00000000:17:00.0)`.
pub(super) fn gpu_name(facts: &GpuFacts) -> String {
    match &facts.bus_id {
        Ok(bus_id) => format!("GPU {} ({bus_id})", facts.index),
        Err(_) => format!("GPU {}", facts.index),
    }
}

pub(super) fn gpu_trouble(
    function: &'static str,
    error: &NvmlError,
    facts: &GpuFacts,
    now: Moment,
) -> Trouble {
    let gpu = gpu_name(facts);
    let (cause, sentence) = match error {
        NvmlError::GpuLost => (
            Cause::Lost,
            format!(
                "{gpu} fell off the bus; `dmesg | grep -i xid` may say why, and the host may need a reboot"
            ),
        ),
        // Querying a GPU through NVML counts as using it; that includes gputop.
        NvmlError::ResetRequired => (
            Cause::Reset,
            format!(
                "{gpu} needs a reset: end its processes, leave gputop, then `nvidia-smi --gpu-reset`"
            ),
        ),
        NvmlError::NoPermission | NvmlError::OperatingSystem => (
            Cause::Denied,
            format!(
                "{gpu} refused {function}: may this user, or this container, open its /dev/nvidia file?"
            ),
        ),
        error => {
            let reason = Text::from(error.to_string());
            (
                Cause::Failed,
                format!("{gpu} failed at {function}: {reason}; `dmesg | grep -i nvrm` may say why"),
            )
        }
    };
    Trouble {
        cause,
        sentence: sentence.into(),
        call: Some(function.into()),
        since: now,
    }
}

pub(super) fn driver_trouble(function: &'static str, error: &NvmlError, now: Moment) -> Trouble {
    let (cause, sentence) = match error {
        NvmlError::DriverNotLoaded | NvmlError::Uninitialized => (
            Cause::NoDriver,
            "the NVIDIA driver is not running: is its kernel module loaded (`lsmod | grep nvidia`)?".to_owned(),
        ),
        NvmlError::LibRmVersionMismatch => (Cause::Mismatch, driver_versions::mismatch()),
        NvmlError::NotFound | NvmlError::UnexpectedVariant(NO_GPU) => (
            Cause::NoGpu,
            "the NVIDIA driver finds no GPU: `lspci | grep -i nvidia` and `dmesg | grep -i nvrm` may say why"
                .to_owned(),
        ),
        NvmlError::NoPermission | NvmlError::OperatingSystem => (
            Cause::Denied,
            "the NVIDIA driver refused: may this user, or this container, open /dev/nvidiactl?".to_owned(),
        ),
        error => {
            let reason = Text::from(error.to_string());
            let sentence = "the NVIDIA driver failed at";
            (Cause::Failed, format!("{sentence} {function}: {reason}; `dmesg | grep -i nvrm` may say why"))
        }
    };
    Trouble {
        cause,
        sentence: sentence.into(),
        call: Some(function.into()),
        since: now,
    }
}

/// Returns the trouble `new`, with the start time of `before` if both have the same cause.
pub(super) fn continued(new: Trouble, before: Option<&Trouble>) -> Trouble {
    let since = before
        .filter(|before| before.cause == new.cause)
        .map_or(new.since, |before| before.since);
    Trouble { since, ..new }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_cause() {
        let cause = |error| driver_trouble("nvmlInit_v2", &error, Moment(0)).cause;
        assert_eq!(cause(NvmlError::DriverNotLoaded), Cause::NoDriver);
        assert_eq!(cause(NvmlError::LibRmVersionMismatch), Cause::Mismatch);
        assert_eq!(cause(NvmlError::NoPermission), Cause::Denied);
        assert_eq!(cause(NvmlError::UnexpectedVariant(NO_GPU)), Cause::NoGpu);
        assert_eq!(cause(NvmlError::Unknown), Cause::Failed);
    }
}
