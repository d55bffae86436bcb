//! Bars and pages that split memory into its parts.

use super::*;

#[test]
fn the_memory_bar_is_split_and_the_cache_is_a_column() {
    // The bar has 12 cells for 80 GiB: tensors hold 3 of them, 3 are reserved and unallocated.
    for (theme, bar) in [
        (Theme::new(false, ColourDepth::Sixteen), "▇▇▇▇▇▇──────"),
        (Theme::new(true, ColourDepth::None), "###%%:------"),
    ] {
        let screen = screen(theme, &with_allocator(164, &[]), 164, 60);
        let line = screen
            .lines()
            .find(|line| line.contains(" 7 alice "))
            .unwrap();
        assert!(
            line.contains(&format!(" 40.0G {bar} ")) && line.contains(" 10.0G "),
            "{line}"
        );
        assert!(
            screen.contains("MEMORY▼ OF GPU") || screen.contains("MEMORYv OF GPU"),
            "{screen}"
        );
        assert!(screen.contains("CACHE"), "{screen}");
    }
    // A narrow screen has the column too, and no bar.
    let screen = screen(
        Theme::new(false, ColourDepth::Sixteen),
        &with_allocator(80, &[]),
        80,
        60,
    );
    assert!(
        screen.lines().any(|it| it.contains(" 7 alice ")
            && it.contains(" 40.0G ")
            && it.contains(" 10.0G ")
            && !it.contains('─')),
        "{screen}"
    );
}

#[test]
fn each_cell_of_a_bar_is_of_the_part_that_has_most_of_it() {
    let cells = |parts: [u64; 3], width| theme::cells(parts.map(Bytes), Bytes(80), width);
    assert_eq!(cells([20, 16, 4], 16), [4, 3, 1]);
    // Half a GiB beside 9 and 3 GiB takes no cell.
    assert_eq!(
        theme::cells([90, 30, 5].map(Bytes), Bytes(796), 16),
        [2, 1, 0]
    );
    // A single cell goes to the largest part.
    assert_eq!(cells([9, 3, 1], 4), [1, 0, 0]);
    assert_eq!(
        (cells([0, 0, 0], 4), cells([80, 80, 80], 6)),
        ([0; 3], [2; 3])
    );
    // A small amount differs from none.
    let host = with_parts(&[(6, 3), (254, 100)]);
    let app = app_with(&host, 164, Settings::default());
    let line = line_of(&app, 164, " 8.0G");
    assert!(line.contains(" 8.0G ▇▎────────── "), "{line}");
}

#[test]
fn a_full_bar_of_memory_is_all_memory_of_the_gpus_of_a_process() {
    let gib = Bytes::from_gib;
    let host = host(3)
        .with(7, "python a.py", 0, gib(40))
        .with(8, "python b.py", 1, gib(40))
        .with(8, "", 2, gib(80));
    let host = host.with(9, "python c.py", 0, gib(1));
    let app = app_with(&host, 164, Settings::default());
    assert!(line_of(&app, 164, " PID ").contains("MEMORY▼ OF GPU"));
    for (amount, bar) in [
        (" 40.0G ", "▇▇▇▇▇▇──────"),
        (" 120G ", "▇▇▇▇▇▇▇▇▇───"),
        (" 1.0G ", "▏───────────"),
    ] {
        let line = line_of(&app, 164, amount);
        assert!(line.contains(bar), "{line}");
    }
}

#[test]
fn the_page_of_a_process_breaks_its_memory_down_to_the_byte() {
    let page = |keys: &[KeyCode]| words(&with_allocator(120, keys));
    let process = page(&[KeyCode::Enter]);
    for line in [
        "Memory on GPU 0, PyTorch's cuda:0",
        "driver's figure 40.0 GiB 42,949,672,960 what nvidia-smi shows: all of the lines below",
        "- not PyTorch's 4.0 GiB 4,294,967,296 CUDA context",
        "- reserved 36.0 GiB 38,654,705,664 the rest",
        "- cache 10.0 GiB 10,737,418,240 free: empty_cache() would give it back",
        "- fragmented 5.0 GiB 5,368,709,120 free",
        "- pending 1.0 GiB 1,073,741,824 freed",
        "- allocated 20.0 GiB 21,474,836,480 held by tensors",
        "rounding 2.0 GiB 2,147,483,648",
        "peaks allocated 30.0 GiB, reserved 37.0 GiB",
        "emptied 3 times",
        "expandable_segments:True",
    ] {
        assert!(process.contains(line), "{line}\n{process}");
    }
    let gpu = page(&[KeyCode::Tab, KeyCode::Char('i')]);
    for line in [
        "allocated 20.0 GiB",
        "other 4.0 GiB",
        "free 40.0 GiB",
        "total 80.0 GiB 85,899,345,920 all of these",
    ] {
        assert!(gpu.contains(line), "{line}\n{gpu}");
    }
}

/// Draws a page of a process whose allocator stats are known, after a change.
fn changed_page(keys: &[KeyCode], change: &dyn Fn(&mut Snapshot)) -> String {
    let mut host = host(2).with(100, "python train.py", 0, Bytes::from_gib(40));
    let gib = |gib: u64| Ok(Bytes::from_gib(gib));
    let gpu = Some(host.gpus[0].uuid.clone());
    let allocator = DeviceAllocator {
        allocated: gib(20),
        active: gib(20),
        requested: gib(20),
        inactive_split: gib(0),
        reserved: gib(36),
        ..DeviceAllocator::missing(0, gpu, Missing::NotYet)
    };
    host.processes[0].allocator = Some(Box::new(AllocatorStats {
        devices: vec![allocator],
        unreadable: None,
    }));
    change(&mut host);
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(120, 60));
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(host))),
    ));
    for key in keys {
        app.update(Event::Key(KeyEvent::from(*key)));
    }
    words(&app)
}

/// Draws a screen with a single space between words.
fn words(app: &App) -> String {
    let theme = Theme::new(false, ColourDepth::Sixteen);
    screen(theme, app, 120, 60)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
        .collect()
}

#[test]
fn the_page_says_which_parts_of_memory_are_unknown() {
    let check = |keys: &[KeyCode], change: &dyn Fn(&mut Snapshot), lines: &[&str]| {
        let page = changed_page(keys, change);
        for line in lines {
            assert!(page.contains(line), "{line}\n{page}");
        }
    };
    let (process, gpu) = ([KeyCode::Enter], [KeyCode::Tab, KeyCode::Char('i')]);
    let memory = |host: &mut Snapshot, memory| host.gpus[0].processes[0].memory = memory;
    check(
        &process,
        &|it| memory(it, Err(Missing::Unsupported)),
        &["driver's figure N/A: what is not PyTorch's cannot"],
    );
    let less = [
        "- not PyTorch's -1.0 GiB",
        "PyTorch took more than the driver says",
    ];
    check(&process, &|it| memory(it, Ok(Bytes::from_gib(35))), &less);
    let more = ["- not PyTorch's 24.0 GiB 25,769,803,776 more than CUDA takes for itself"];
    check(&process, &|it| memory(it, Ok(Bytes::from_gib(60))), &more);
    // If the GPU of a device is not known, the breakdown is over all GPUs.
    let unplaced =
        |it: &mut Snapshot| it.processes[0].allocator.as_mut().unwrap().devices[0].gpu = None;
    let all = [
        "which GPU cannot be told",
        "Memory on all its GPUs",
        "- not PyTorch's 4.0 GiB",
        "- reserved 36.0 GiB",
    ];
    check(&process, &unplaced, &all);
    check(
        &gpu,
        &unplaced,
        &["in use 40.0 GiB 42,949,672,960 of processes of which it cannot be told"],
    );
    check(
        &gpu,
        &|it| it.processes[0].allocator = None,
        &["of processes that could not be read"],
    );
    check(
        &gpu,
        &|_| (),
        &["other 4.0 GiB 4,294,967,296 not PyTorch's: CUDA contexts"],
    );
    // A CUDA context on a GPU where the process has no tensor.
    let context = |it: &mut Snapshot, gib| {
        let mut gpu_process = it.gpus[0].processes[0].clone();
        gpu_process.memory = Ok(Bytes::from_gib(gib));
        it.gpus[1].processes.push(gpu_process);
    };
    let here = [
        "Memory on GPU 1",
        "- not PyTorch's 1.0 GiB 1,073,741,824 all: PyTorch has nothing",
    ];
    check(&process, &|it| context(it, 1), &here);
    // Each GPU has a context of its own.
    for (gib, meaning) in [
        (3, "7.0 GiB 7,516,192,768 CUDA context"),
        (5, "9.0 GiB 9,663,676,416 more than CUDA takes"),
    ] {
        let all = [
            "Memory on all its GPUs",
            &format!("- not PyTorch's {meaning}"),
        ];
        check(
            &process,
            &|it| {
                unplaced(it);
                context(it, gib);
            },
            &all,
        );
    }
}
