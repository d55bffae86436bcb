//! GPM: metrics between two samples. The fake's metrics are the same between any two samples.

use std::{ffi::c_char, ptr};

use crate::{
    abi::{Code, GpmSupport, Out},
    calls::{device_calls, system_calls},
    devices::expect_version,
    machine::{Machine, wave},
};

/// The version of `GpmSupport`, which unlike others does not contain the size.
const SUPPORT_VERSION: u32 = 1;

/// The content of a sample is this number plus the number of its device.
const SAMPLE_BASE: usize = 0x6e47_0000_0000;

/// `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Metric {
    pub id: u32,
    pub answer: u32,
    pub value: f64,
    pub names: [*const c_char; 3],
}

/// The head of `nvmlGpmMetricsGet_t`; as many metrics follow as `count` says.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MetricsHead {
    pub version: u32,
    pub count: u32,
    pub samples: [Out<usize>; 2],
}

device_calls! {
    nvmlGpmQueryDeviceSupport(device, support: Out<GpmSupport>) {
        let supported = device.gpu()?.gpm.is_some().into();
        let version = expect_version(support.cast(), SUPPORT_VERSION)?;
        support.write(GpmSupport { version, supported })
    }
    nvmlGpmSampleGet(device, sample: Out<usize>) {
        if device.gpu()?.gpm.is_none() {
            return Err(Code::NOT_SUPPORTED);
        }
        sample.write(SAMPLE_BASE + device.number())
    }
}

system_calls! {
    nvmlGpmSampleAlloc(_machine, sample: Out<*mut usize>) { sample.write(Box::into_raw(Box::new(0))) }
    nvmlGpmSampleFree(_machine, sample: *mut usize) {
        // SAFETY: the caller frees, once, a sample that nvmlGpmSampleAlloc returned.
        if !sample.is_null() { drop(unsafe { Box::from_raw(sample) }); }
        Ok(())
    }
    nvmlGpmMetricsGet(machine, metrics: Out<MetricsHead>) {
        let head = metrics.read()?;
        let numbers = [head.samples[0].read()?, head.samples[1].read()?].map(|content| content.wrapping_sub(SAMPLE_BASE));
        if numbers[0] != numbers[1] {
            return Err(Code::INVALID_ARGUMENT);
        }
        let number = machine.number(Machine::handle(numbers[0])).or(Err(Code::INVALID_ARGUMENT))?;
        let gpu = &machine.world.gpus[machine.position(number)?.gpu];
        let list: Out<Metric> = metrics.offset(1).cast();
        for index in 0..head.count as usize {
            let asked = list.offset(index).read()?;
            let known = gpu.gpm.as_ref().and_then(|metrics| metrics.get(&asked.id).copied());
            let jitter = if gpu.jitter { wave(machine.now, f64::from(asked.id)) * 6.0 } else { 0.0 };
            let value = known.map_or(0.0, |value| (value + jitter).clamp(0.0, value.max(100.0)));
            let answer = if known.is_some() { 0 } else { Code::NOT_SUPPORTED.0 };
            list.offset(index).write(Metric { answer, value, names: [ptr::null(); 3], ..asked })?;
        }
        Ok(())
    }
}
