//! GPUs with the values of real ones under load. Values that a GPU does not support are absent.

use crate::gpu::{
    Bar1, Clocks, Ecc, Fabric, Gpu, Inforom, Memory, Mig, MigInstance, NvLink, Pcie, Power,
    RemappedRows, Temperature, Utilization,
};

const MIB: u64 = 1 << 20;

/// The GPU with this name, at this position of the machine.
pub fn gpu(name: &str, position: usize) -> Option<Gpu> {
    let gpu = match name {
        "H100" => Gpu {
            fabric: Some(Fabric {
                state: 3,
                ..Fabric::default()
            }),
            module: Some(7),
            ..h100()
        },
        "H100-580" => h100_580(),
        "A100" => a100(),
        "A100-MIG" => a100_mig(position),
        "RTX-4090" => rtx_4090(),
        "GTX-970" => gtx_970(),
        "GH200" => gh200(),
        "GB10" => gb10(),
        "WSL" => wsl(),
        "VGPU" => vgpu(),
        "ORIN" => orin(),
        _ => return None,
    };
    Some(Gpu {
        uuid: format!("GPU-{position:08x}-1111-2222-3333-{position:012x}"),
        pci: format!(
            "00000000:{:02X}:00.0",
            0x1b + position * 0x10 % 0xe0 + position / 14
        ),
        ..gpu
    })
}

fn h100() -> Gpu {
    Gpu {
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        pci_device_id: 0x2330_10DE,
        serial: Some("1650000000000".to_owned()),
        vbios: Some("96.00.A5.00.01".to_owned()),
        brand: 14,
        numa: Some(0),
        architecture: 9,
        compute_capability: (9, 0),
        cores: Some(16896),
        memory: Memory {
            total: 85_520_809_984,
            reserved: 600 * MIB,
            unaccounted: 0,
            v2: true,
        },
        bar1: Some(Bar1 {
            total: 131_072 * MIB,
            used: 4 * MIB,
        }),
        utilization: Utilization {
            gpu: Some(97),
            memory: Some(41),
            encoder: Some(0),
            decoder: Some(0),
            jpeg: Some(0),
            ofa: Some(0),
        },
        temperature: Temperature {
            gpu: Some(59),
            memory: Some(55),
            shutdown: Some(93),
            slowdown: Some(87),
            memory_max: Some(95),
            gpu_max: Some(85),
        },
        power: Power {
            usage: Some(588_390),
            limit: Some(700_000),
            default_limit: Some(700_000),
            min_limit: Some(200_000),
            max_limit: Some(700_000),
            energy: Some(81_234_567_890),
        },
        clocks: clocks(1980, 2619, 1545),
        max_clocks: clocks(1980, 2619, 1545),
        pstate: Some(0),
        throttle: Some(0),
        throttle_ns: [74, 76, 251, 252, 253].map(|field| (field, 0)).into(),
        ecc: Some(Ecc {
            enabled: true,
            pending: true,
            ..Ecc::default()
        }),
        remapped_rows: Some(RemappedRows::default()),
        recovery_action: Some(0),
        pcie: Some(pcie(5, 3092, 6346)),
        nvlink: Some(NvLink {
            links: 18,
            version: 4,
            speed: 26_562,
            ..NvLink::default()
        }),
        persistence: Some(true),
        compute_mode: Some(0),
        accounting: Some(false),
        display: Some(false),
        process_utilization: true,
        gpm: Some([(1, 97.2), (2, 88.0), (3, 40.5), (5, 61.3), (10, 41.0)].into()),
        mig: Some(Mig {
            enabled: false,
            max: 7,
            instances: Vec::new(),
        }),
        ..Gpu::default()
    }
}

/// A passed-through H100 of a virtual machine, alone and without NVLink, under driver 580.159.04.
/// The values are those of `tests/data/real/h100-80gb-hbm3-580/busy/nvidia-smi-q.txt`.
fn h100_580() -> Gpu {
    Gpu {
        serial: Some("1650000000001".to_owned()),
        vbios: Some("96.00.DA.00.0C".to_owned()),
        memory: Memory {
            total: 81_559 * MIB,
            reserved: 480 * MIB,
            unaccounted: 26_432_372_736,
            v2: true,
        },
        bar1: Some(Bar1 {
            total: 131_072 * MIB,
            used: 26_434_142_208,
        }),
        utilization: Utilization {
            gpu: Some(60),
            memory: Some(24),
            ..h100().utilization
        },
        temperature: Temperature {
            gpu: Some(50),
            memory: Some(49),
            shutdown: Some(95),
            slowdown: Some(89),
            memory_max: Some(95),
            gpu_max: Some(87),
        },
        power: Power {
            usage: Some(337_440),
            energy: Some(5_850_534),
            ..h100().power
        },
        power_instant: Some(338_760),
        inforom: Some(Inforom {
            image: Some("G520.0200.00.05".to_owned()),
            oem: Some("2.1".to_owned()),
            ecc: Some("7.16".to_owned()),
            ..Inforom::default()
        }),
        encoder: Some((0, 0, 0)),
        gsp: Some(true),
        addressing: Some(0),
        c2c: Some(false),
        protected_memory: Some((0, 0)),
        display_attached: Some(true),
        nvlink: None,
        module: Some(7),
        pcie: Some(pcie(5, 265_726, 112_076)),
        gpm: Some([(1, 60.0), (2, 50.9), (3, 14.0), (5, 0.0), (10, 19.0)].into()),
        // Inactive row remappings.
        fields: [(301, 0), (302, 0)].into(),
        ..h100()
    }
}

fn a100() -> Gpu {
    Gpu {
        name: "NVIDIA A100-SXM4-40GB".to_owned(),
        pci_device_id: 0x20B0_10DE,
        vbios: Some("92.00.19.00.01".to_owned()),
        architecture: 7,
        compute_capability: (8, 0),
        cores: Some(6912),
        memory: Memory {
            total: 40_960 * MIB,
            reserved: 571 * MIB,
            unaccounted: 0,
            v2: true,
        },
        bar1: Some(Bar1 {
            total: 65_536 * MIB,
            used: MIB,
        }),
        utilization: Utilization {
            gpu: Some(88),
            memory: Some(35),
            ..h100().utilization
        },
        temperature: Temperature {
            gpu: Some(52),
            memory: Some(60),
            shutdown: Some(92),
            slowdown: Some(89),
            memory_max: Some(95),
            gpu_max: Some(85),
        },
        power: Power {
            usage: Some(312_400),
            limit: Some(400_000),
            default_limit: Some(400_000),
            min_limit: Some(100_000),
            max_limit: Some(400_000),
            energy: Some(40_234_567_890),
        },
        clocks: clocks(1410, 1215, 1275),
        max_clocks: clocks(1410, 1215, 1290),
        pcie: Some(pcie(4, 1400, 2100)),
        nvlink: Some(NvLink {
            links: 12,
            version: 3,
            speed: 25_781,
            ..NvLink::default()
        }),
        gpm: None,
        ..h100()
    }
}

fn a100_mig(position: usize) -> Gpu {
    let instance =
        |index: usize, profile: &str, gpu_instance, slices: u32, total: u64| MigInstance {
            uuid: format!("MIG-{position:08x}-4444-5555-6666-{index:012x}"),
            profile: profile.to_owned(),
            gpu_instance,
            compute_instance: 0,
            slices,
            multiprocessors: slices * 14,
            memory: Memory {
                total: total * MIB,
                reserved: 0,
                unaccounted: 0,
                v2: true,
            },
            processes: Vec::new(),
        };
    Gpu {
        // In multi-instance mode, a GPU reports no utilization, neither its own nor that of
        // processes.
        utilization: Utilization::default(),
        nvlink: None,
        process_utilization: false,
        mig: Some(Mig {
            enabled: true,
            max: 7,
            instances: vec![
                instance(0, "3g.20gb", 2, 3, 19_968),
                instance(1, "1g.5gb", 7, 1, 4_864),
                instance(2, "1g.5gb", 8, 1, 4_864),
            ],
        }),
        ..a100()
    }
}

fn rtx_4090() -> Gpu {
    Gpu {
        name: "NVIDIA GeForce RTX 4090".to_owned(),
        pci_device_id: 0x2684_10DE,
        serial: None,
        vbios: Some("95.02.3C.00.8C".to_owned()),
        brand: 5,
        architecture: 8,
        compute_capability: (8, 9),
        cores: Some(16384),
        memory: Memory {
            total: 24_564 * MIB,
            reserved: 446 * MIB,
            unaccounted: 0,
            v2: true,
        },
        bar1: Some(Bar1 {
            total: 32_768 * MIB,
            used: 5 * MIB,
        }),
        utilization: Utilization {
            gpu: Some(76),
            memory: Some(22),
            ..h100().utilization
        },
        temperature: Temperature {
            gpu: Some(61),
            memory: None,
            shutdown: Some(100),
            slowdown: Some(97),
            memory_max: None,
            gpu_max: Some(90),
        },
        power: Power {
            usage: Some(331_200),
            limit: Some(450_000),
            default_limit: Some(450_000),
            min_limit: Some(150_000),
            max_limit: Some(600_000),
            energy: Some(9_234_567_890),
        },
        clocks: clocks(2610, 10_501, 1965),
        max_clocks: clocks(3105, 10_501, 2415),
        pstate: Some(2),
        fans: vec![38, 38],
        ecc: None,
        remapped_rows: None,
        pcie: Some(pcie(4, 115_820, 1_199_755)),
        nvlink: None,
        persistence: Some(false),
        display: Some(true),
        gpm: None,
        mig: None,
        ..h100()
    }
}

/// An old GPU: no memory v2, no utilization of processes, no ECC, no power, and one fan.
fn gtx_970() -> Gpu {
    Gpu {
        name: "NVIDIA GeForce GTX 970".to_owned(),
        pci_device_id: 0x13C2_10DE,
        vbios: Some("84.04.2F.00.80".to_owned()),
        brand: 5,
        architecture: 3,
        compute_capability: (5, 2),
        cores: Some(1664),
        memory: Memory {
            total: 4_036 * MIB,
            reserved: 0,
            unaccounted: 0,
            v2: false,
        },
        bar1: Some(Bar1 {
            total: 256 * MIB,
            used: 2 * MIB,
        }),
        utilization: Utilization {
            gpu: Some(12),
            memory: Some(5),
            encoder: Some(0),
            decoder: Some(0),
            jpeg: None,
            ofa: None,
        },
        temperature: Temperature {
            gpu: Some(47),
            shutdown: Some(96),
            slowdown: Some(91),
            ..Temperature::default()
        },
        clocks: clocks(1050, 3505, 966),
        max_clocks: clocks(1455, 3505, 1339),
        pstate: Some(2),
        fans: vec![34],
        pcie: Some(Pcie {
            max_generation: 3,
            generation: 1,
            tx: None,
            rx: None,
            ..pcie(3, 0, 0)
        }),
        persistence: Some(false),
        compute_mode: Some(0),
        display: Some(true),
        ..Gpu::default()
    }
}

/// A module of GPU and CPU with a chip-to-chip link, each of which can access the memory of the
/// other.
fn gh200() -> Gpu {
    Gpu {
        name: "NVIDIA GH200 480GB".to_owned(),
        pci_device_id: 0x2342_10DE,
        memory: Memory {
            total: 97_871 * MIB,
            reserved: 611 * MIB,
            unaccounted: 0,
            v2: true,
        },
        power: Power {
            usage: Some(612_300),
            limit: Some(900_000),
            default_limit: Some(900_000),
            min_limit: Some(100_000),
            max_limit: Some(900_000),
            energy: Some(91_234_567_890),
        },
        nvlink: None,
        numa_node: Some(1),
        module_power: Some([
            731_400, 742_100, 200_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000,
        ]),
        addressing: Some(2),
        c2c: Some(true),
        gsp: Some(true),
        ..h100()
    }
}

/// DGX Spark: CPU and GPU share one memory, so the driver reports neither memory nor limits.
fn gb10() -> Gpu {
    Gpu {
        name: "NVIDIA GB10".to_owned(),
        pci_device_id: 0x2E12_10DE,
        architecture: 10,
        compute_capability: (12, 1),
        no_memory_info: true,
        utilization: Utilization {
            gpu: Some(64),
            memory: Some(0),
            encoder: Some(0),
            decoder: Some(0),
            ..Utilization::default()
        },
        temperature: Temperature {
            gpu: Some(58),
            ..Temperature::default()
        },
        power: Power {
            usage: Some(41_200),
            ..Power::default()
        },
        clocks: Clocks {
            memory: None,
            ..clocks(2418, 0, 2002)
        },
        max_clocks: Clocks {
            memory: None,
            ..clocks(3003, 0, 3003)
        },
        pstate: Some(0),
        throttle: Some(0),
        pcie: Some(Pcie {
            tx: None,
            rx: None,
            replays: None,
            ..pcie(1, 0, 0)
        }),
        persistence: Some(true),
        compute_mode: Some(0),
        display: Some(false),
        addressing: Some(2),
        process_utilization: true,
        ..Gpu::default()
    }
}

/// A GPU of a Windows host, seen from WSL: processes are listed without their memory.
fn wsl() -> Gpu {
    Gpu {
        no_process_memory: true,
        process_utilization: false,
        serial: None,
        driver_model: Some(0),
        ..rtx_4090()
    }
}

/// A vGPU in a virtual machine: temperature, power and PCIe are not reported.
fn vgpu() -> Gpu {
    Gpu {
        name: "NVIDIA A40-24Q".to_owned(),
        pci_device_id: 0x2235_10DE,
        architecture: 7,
        compute_capability: (8, 6),
        memory: Memory {
            total: 24_576 * MIB,
            reserved: 1_664 * MIB,
            unaccounted: 0,
            v2: true,
        },
        bar1: Some(Bar1 {
            total: 256 * MIB,
            used: MIB,
        }),
        utilization: Utilization {
            gpu: Some(31),
            memory: Some(12),
            encoder: Some(0),
            decoder: Some(0),
            ..Utilization::default()
        },
        pstate: Some(0),
        persistence: Some(true),
        compute_mode: Some(0),
        display: Some(false),
        process_utilization: true,
        ..Gpu::default()
    }
}

/// A Jetson: NVML reports the name, and little else.
fn orin() -> Gpu {
    Gpu {
        name: "Orin (nvgpu)".to_owned(),
        architecture: 7,
        compute_capability: (8, 7),
        no_memory_info: true,
        no_process_lists: true,
        ..Gpu::default()
    }
}

fn clocks(core: u32, memory: u32, video: u32) -> Clocks {
    Clocks {
        graphics: Some(core),
        sm: Some(core),
        memory: Some(memory),
        video: Some(video),
    }
}

fn pcie(generation: u32, tx: u32, rx: u32) -> Pcie {
    Pcie {
        generation,
        width: 16,
        max_generation: generation,
        max_width: 16,
        tx: Some(tx),
        rx: Some(rx),
        replays: Some(0),
    }
}
