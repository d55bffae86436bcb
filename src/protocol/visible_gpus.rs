//! Which GPUs `CUDA_VISIBLE_DEVICES` shows to CUDA.

use crate::protocol::snapshot::{Gpu, GpuUuid};

/// The values of the two variables that choose and order the devices of CUDA.
#[derive(Debug, Clone, Copy)]
pub struct CudaVariables<'a> {
    /// `CUDA_VISIBLE_DEVICES`; `None` when it is not set: CUDA then shows all GPUs.
    pub visible: Option<&'a str>,
    /// `CUDA_DEVICE_ORDER`; `None` when it is not set.
    pub order: Option<&'a str>,
}

impl CudaVariables<'_> {
    /// Whether `CUDA_VISIBLE_DEVICES` names GPUs by CUDA's numbers.
    pub fn has_numbers(&self) -> bool {
        self.visible
            .is_some_and(|visible| device_number(visible).is_some())
    }

    /// Returns the indices in `gpus` of the GPUs and MIG instances that CUDA shows, in CUDA's
    /// order. `None` when numbers name them, and what the numbers mean is not known: CUDA's own
    /// order begins with the fastest GPU. It is the order of the PCI bus, as NVML's, if all GPUs
    /// are of one model.
    ///
    /// The CUDA programming guide says that the list ends at the first entry that names no device.
    /// The rest is as in PyTorch (`_parse_visible_devices` of `torch/cuda/__init__.py`): the first
    /// entry says whether all are numbers, `GPU-…` or `MIG-…`, a UUID may be cut off, a number may
    /// be followed by other characters, and CUDA shows no device if one is repeated.
    pub fn visible_gpus(&self, gpus: &[Gpu]) -> Option<Vec<usize>> {
        let whole: Vec<usize> = (0..gpus.len())
            .filter(|place| gpus[*place].facts.parent.is_none())
            .collect();
        let is_ordered = self.order == Some("PCI_BUS_ID") || are_alike(gpus, &whole);
        let Some(visible) = self.visible else {
            return is_ordered.then_some(whole);
        };
        if self.has_numbers() && !is_ordered {
            return None;
        }
        let device = |name: &str| match () {
            () if visible.starts_with("GPU-") => only(&whole, |gpu| {
                name.starts_with("GPU-") && has_uuid(gpus, gpu, name)
            }),
            () if visible.starts_with("MIG-") => {
                let instances: Vec<usize> = (0..gpus.len())
                    .filter(|place| !whole.contains(place))
                    .collect();
                only(&instances, |instance| is_instance(gpus, instance, name))
            }
            () => whole.get(device_number(name)?).copied(),
        };
        let mut shown = Vec::new();
        for found in visible.split(',').map(str::trim).map_while(device) {
            let found = first_instance(gpus, found);
            if shown.contains(&found) {
                return Some(Vec::new());
            }
            shown.push(found);
        }
        Some(shown)
    }
}

/// Whether these GPUs have the same name, so that CUDA's own order of them is that of the PCI bus.
pub fn are_alike(gpus: &[Gpu], places: &[usize]) -> bool {
    let mut names = places
        .iter()
        .map(|place| gpus[*place].facts.name.as_ref().ok());
    let first = names.next();
    first.is_some_and(|first| first.is_some() && names.all(|name| name == first))
}

/// Returns the number at the beginning of an entry, as `strtol` reads it; `None` when it has none,
/// or a negative one.
fn device_number(entry: &str) -> Option<usize> {
    let entry = entry.trim_start();
    let (is_negative, digits) = match entry.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, entry.strip_prefix('+').unwrap_or(entry)),
    };
    let end = digits
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(digits.len());
    // A number with too many digits is that of no GPU.
    let number = if end > 0 {
        digits[..end].parse().unwrap_or(usize::MAX)
    } else {
        return None;
    };
    (!is_negative || number == 0).then_some(number)
}

/// Returns the only place for which a condition holds; `None` when it holds for none, or for more
/// than one.
fn only(places: &[usize], is_named: impl Fn(usize) -> bool) -> Option<usize> {
    let mut named = places.iter().copied().filter(|place| is_named(*place));
    named.next().filter(|_| named.next().is_none())
}

fn has_uuid(gpus: &[Gpu], place: usize, beginning: &str) -> bool {
    gpus[place].uuid.0.as_str().starts_with(beginning)
}

/// Whether an entry names an instance: `MIG-5c89852c…`, or before driver 470
/// `MIG-GPU-8932f937…/1/0` with the UUID of the GPU, the GPU instance and the compute instance.
fn is_instance(gpus: &[Gpu], place: usize, entry: &str) -> bool {
    if entry.starts_with("MIG-") && has_uuid(gpus, place, entry) {
        return true;
    }
    let facts = &gpus[place].facts;
    let of_parent = |entry: &str| {
        let mut parts = entry.strip_prefix("MIG-")?.split('/');
        let (gpu, ids) = (
            parts.next()?,
            [
                parts.next()?.parse::<u32>().ok()?,
                parts.next()?.parse().ok()?,
            ],
        );
        let is_parent = facts.parent.as_ref()?.0.as_str().starts_with(gpu);
        Some(
            is_parent
                && parts.next().is_none()
                && ids.map(Ok) == [facts.gpu_instance, facts.compute_instance],
        )
    };
    of_parent(entry) == Some(true)
}

/// Returns the place of the instance that CUDA takes for a whole GPU that is split by MIG: the
/// first. Instances follow their GPU. A GPU that is not split stands for itself.
fn first_instance(gpus: &[Gpu], place: usize) -> usize {
    let is_part = |uuid: &GpuUuid| {
        gpus.get(place + 1)
            .is_some_and(|next| next.facts.parent.as_ref() == Some(uuid))
    };
    if is_part(&gpus[place].uuid) {
        place + 1
    } else {
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example;

    /// Four GPUs, of which the last is split into two instances.
    fn gpus() -> Vec<Gpu> {
        let mut gpus = example::host(4).gpus;
        for (gpu, uuid) in gpus
            .iter_mut()
            .zip(["GPU-aa11", "GPU-aa22", "GPU-bb33", "GPU-cc44"])
        {
            gpu.uuid = GpuUuid(uuid.into());
        }
        for (id, uuid) in [(1, "MIG-dd55"), (2, "MIG-ee66")] {
            let mut instance = gpus[3].clone();
            instance.uuid = GpuUuid(uuid.into());
            instance.facts.parent = Some(gpus[3].uuid.clone());
            (instance.facts.gpu_instance, instance.facts.compute_instance) = (Ok(id), Ok(0));
            gpus.push(instance);
        }
        gpus
    }

    fn shown(visible: &str) -> Vec<usize> {
        CudaVariables {
            visible: Some(visible),
            order: None,
        }
        .visible_gpus(&gpus())
        .expect("all GPUs are alike")
    }

    #[test]
    fn the_list_is_read_as_cuda_reads_it() {
        let table: [(&str, &[usize]); 37] = [
            ("0,2", &[0, 2]),
            ("2,0", &[2, 0]),
            // The list ends at the first entry that names no device.
            ("0,2,-1,1", &[0, 2]),
            ("0,9,1", &[0]),
            ("0,,1", &[0]),
            ("0,x,1", &[0]),
            ("1,GPU-aa11", &[1]),
            ("GPU-aa11,1", &[0]),
            ("GPU-aa11,MIG-dd55", &[0]),
            ("GPU-aa11,GPU-ff,GPU-bb33", &[0]),
            ("99999999999999999999", &[]),
            // No device.
            ("", &[]),
            ("-1", &[]),
            ("NoDevFiles", &[]),
            ("none", &[]),
            ("void", &[]),
            ("gpu-aa11", &[]),
            (",0", &[]),
            // A repeated device: none is shown.
            ("0,0", &[]),
            ("0,1,0", &[]),
            ("0,+0", &[]),
            ("GPU-aa11,GPU-aa1", &[]),
            ("0,-1,0", &[0]),
            // As `strtol` reads numbers.
            (" 1, 2", &[1, 2]),
            ("GPU-bb33, GPU-aa22", &[2, 1]),
            ("+1", &[1]),
            ("1gpu,2ampere", &[1, 2]),
            ("01", &[1]),
            ("0x2", &[0]),
            // A part of a UUID that names one GPU only.
            ("GPU-b,GPU-aa2", &[2, 1]),
            ("GPU-aa,GPU-b", &[]),
            // A number or a UUID of a GPU that is split stands for its first instance.
            ("3", &[4]),
            ("GPU-cc44", &[4]),
            ("MIG-ee66,MIG-dd55", &[5, 4]),
            ("MIG-e", &[5]),
            ("MIG-GPU-cc44/2/0", &[5]),
            ("MIG-GPU-cc44/3/0,MIG-dd55", &[]),
        ];
        for (visible, expected) in table {
            assert_eq!(shown(visible), expected, "{visible:?}");
        }
    }

    #[test]
    fn numbers_are_known_in_bus_order_or_if_all_gpus_are_of_one_model() {
        let mut gpus = gpus();
        gpus[1].facts.name = Ok("NVIDIA A100".into());
        let read = |visible, order| CudaVariables { visible, order }.visible_gpus(&gpus);
        assert_eq!(read(Some("1"), None), None);
        assert_eq!(read(Some("1"), Some("FASTEST_FIRST")), None);
        assert_eq!(read(None, None), None);
        assert_eq!(read(Some("1"), Some("PCI_BUS_ID")), Some(vec![1]));
        // These need no order.
        assert_eq!(read(Some("GPU-bb33"), None), Some(vec![2]));
        assert_eq!(read(Some("-1"), None), Some(vec![]));
    }
}
