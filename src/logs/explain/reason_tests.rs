//! Generated messages: the reason and its sentence follow from the figures, and the sentence adds
//! up.

use proptest::prelude::*;
use serde_json::Value;

use super::tests::{explained, find};

const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;

/// The memory of one GPU and a request, in MiB.
#[derive(Debug, Clone)]
struct Scene {
    total: u64,
    allocated: u64,
    cache: u64,
    outside: u64,
    other: u64,
    driver: u64,
    requested: u64,
}

impl Scene {
    fn free(&self) -> u64 {
        self.total - self.allocated - self.cache - self.outside - self.other - self.driver
    }

    /// Returns the message of PyTorch 2.5.
    fn sentences(&self) -> String {
        let other = match self.other {
            0 => String::new(),
            held => format!("Process 4711 has {} memory in use. ", printed(held)),
        };
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which {} \
             is free. {other}Including non-PyTorch memory, this process has {} memory in use. Of the allocated memory {} is \
             allocated by PyTorch, and {} is reserved by PyTorch but unallocated.\n",
            printed(self.requested),
            printed(self.total),
            printed(self.free()),
            printed(self.allocated + self.cache + self.outside),
            printed(self.allocated),
            printed(self.cache),
        )
    }

    /// Returns the message of PyTorch 1.13.
    fn brackets(&self) -> String {
        format!(
            "RuntimeError: CUDA out of memory. Tried to allocate {} (GPU 0; {} total capacity; {} already allocated; {} free; {} \
             reserved in total by PyTorch)\n",
            printed(self.requested),
            printed(self.total),
            printed(self.allocated),
            printed(self.free()),
            printed(self.allocated + self.cache),
        )
    }
}

/// Formats an amount of MiB as PyTorch does.
#[expect(clippy::cast_precision_loss, reason = "two decimals are printed")]
fn printed(mib: u64) -> String {
    match mib {
        0 => "0 bytes".to_owned(),
        1..1024 => format!("{mib}.00 MiB"),
        _ => format!("{:.2} GiB", mib as f64 / 1024.0),
    }
}

fn scenes() -> impl Strategy<Value = Scene> {
    let share = || prop_oneof![3 => 0.0..1.0_f64, 1 => Just(0.0)];
    let parts = (share(), share(), share(), share(), 0.0..0.1_f64, share());
    let request = prop_oneof![Just(2_u64), Just(20), 2..2000_u64, 2..200_000_u64];
    (4000..200_000_u64, parts, request).prop_map(
        |(total, (allocated, cache, outside, other, driver, free), requested)| {
            let whole = (allocated + cache + outside + other + driver + free).max(0.001);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "small"
            )]
            let part = |share: f64| (share / whole * total as f64 * 0.999) as u64;
            let (allocated, cache, outside) = (part(allocated), part(cache), part(outside));
            Scene {
                total,
                allocated,
                cache,
                outside,
                other: part(other),
                driver: part(driver),
                requested,
            }
        },
    )
}

/// Returns the amounts in a sentence, in bytes, in their order.
fn amounts(sentence: &str) -> Vec<f64> {
    let words: Vec<&str> = sentence.split([' ', '(']).collect();
    words
        .windows(2)
        .filter_map(|pair| {
            let unit = match pair[1].trim_end_matches([',', '.', ':', ';', ')']) {
                "bytes" => 1.0,
                "KiB" => 1024.0,
                "MiB" => MIB,
                "GiB" => GIB,
                _ => return None,
            };
            Some(pair[0].parse::<f64>().expect("a number") * unit)
        })
        .collect()
}

/// Checks that the sum that a sentence states is the sum of its parts, but for rounding.
#[track_caller]
fn adds_up(parts: &[f64], sum: f64, sentence: &str) {
    let difference = (parts.iter().sum::<f64>() - sum).abs();
    #[expect(clippy::cast_precision_loss, reason = "a few parts")]
    let rounding = (parts.len() + 1) as f64 * 0.0051 * if sum >= GIB { GIB } else { MIB };
    assert!(
        difference <= rounding,
        "{parts:?} are not {sum}: {sentence}"
    );
}

/// How far rounding may take the difference of two printed amounts, in MiB.
const ROUNDING: u64 = 12;

#[track_caller]
fn check(scene: &Scene, message: &str) {
    let json = explained(find(message.as_bytes()));
    let message = &json["messages"][0];
    let name = |reason: &Value| reason["name"].as_str().expect("a name").to_owned();
    let reasons = message["reasons"].as_array().expect("a list");
    assert_eq!(message["reason"].as_str(), Some(name(&reasons[0]).as_str()));
    for (place, reason) in reasons.iter().enumerate() {
        let sentence = reason["sentence"].as_str().expect("a sentence");
        let stated = amounts(sentence);
        match name(reason).as_str() {
            "too_big" => assert!(stated[0] > stated[1], "{sentence}"),
            "full" if sentence.contains("last pieces") => {}
            "full" => {
                // The sum and the total come last, but for a mention of other processes.
                let stated = sentence
                    .split(" It would")
                    .next()
                    .map(amounts)
                    .expect("a text");
                let [parts @ .., requested, sum, total] = stated.as_slice() else {
                    panic!("{sentence}")
                };
                assert!(sum > total, "{sentence}");
                let rest = sentence
                    .contains("others hold")
                    .then(|| parts.last().expect("a part"));
                let held: Vec<f64> = [parts[0]]
                    .into_iter()
                    .chain(rest.copied())
                    .chain([*requested])
                    .collect();
                adds_up(&held, *sum, sentence);
                let own = &parts[1..parts.len() - usize::from(rest.is_some())];
                if !own.is_empty() {
                    adds_up(own, parts[0], sentence);
                }
            }
            "fragmentation" => match stated.as_slice() {
                [cache, requested] => assert!(cache >= requested, "{sentence}"),
                [cache, free, sum, requested] => {
                    assert!(sum >= requested, "{sentence}");
                    adds_up(&[*cache, *free], *sum, sentence);
                }
                _ => panic!("{sentence}"),
            },
            "outside_pytorch" => {
                let [outside, held, sum, requested] = stated.as_slice() else {
                    panic!("{sentence}")
                };
                assert!(sum >= requested && held >= outside, "{sentence}");
            }
            "someone_else" => {
                let [of_others, total, held, requested, sum, _] = stated.as_slice() else {
                    panic!("{sentence}")
                };
                assert!(sum <= total && of_others <= total, "{sentence}");
                adds_up(&[*held, *requested], *sum, sentence);
            }
            "refused" => assert!(stated[0] >= stated[1], "{sentence}"),
            other => panic!("{other} needs other figures: {sentence}"),
        }
        // The conditions, on the exact figures.
        let Scene {
            total,
            allocated,
            cache,
            requested,
            ..
        } = *scene;
        if place == 0 {
            match name(reason).as_str() {
                "too_big" => assert!(requested + ROUNDING > total),
                "fragmentation" => {
                    assert!(
                        cache + ROUNDING >= requested
                            || cache * 10 + ROUNDING > total
                                && cache + scene.free() + 2 * ROUNDING >= requested
                    );
                }
                "someone_else" => assert!(allocated + cache + requested <= total + 2 * ROUNDING),
                "refused" => assert!(scene.free() + ROUNDING >= requested),
                _ => assert!(requested <= total + ROUNDING),
            }
        }
    }
}

/// Returns the names of the reasons of a message.
fn reasons(message: &str) -> Vec<String> {
    let json = explained(find(message.as_bytes()));
    let reasons = json["messages"][0]["reasons"].as_array().expect("a list");
    reasons
        .iter()
        .map(|reason| reason["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn the_size_of_the_cache_decides_whether_fragmentation_comes_first() {
    for (cache, expected) in [
        (100, vec!["full", "fragmentation"]),
        (180, vec!["full", "fragmentation"]),
        (220, vec!["fragmentation", "full"]),
        (990, vec!["fragmentation", "full"]),
        (1100, vec!["fragmentation"]),
    ] {
        let scene = Scene {
            total: 10_000,
            allocated: 9500 - cache,
            cache,
            outside: 450,
            other: 0,
            driver: 0,
            requested: 90,
        };
        assert_eq!(
            reasons(&scene.sentences()),
            expected,
            "{cache} MiB in the cache"
        );
        assert_eq!(
            reasons(&scene.brackets()),
            expected,
            "{cache} MiB in the cache"
        );
    }
}

#[test]
fn a_small_cache_does_not_hide_other_processes_or_memory_outside_pytorch() {
    let scene = Scene {
        total: 10_000,
        allocated: 5000,
        cache: 100,
        outside: 0,
        other: 4880,
        driver: 0,
        requested: 90,
    };
    assert_eq!(
        reasons(&scene.sentences()),
        ["someone_else", "fragmentation"]
    );
    let scene = Scene {
        outside: 4880,
        other: 0,
        ..scene
    };
    assert_eq!(
        reasons(&scene.sentences()),
        ["outside_pytorch", "fragmentation", "full"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_sentence_adds_up_for_torch_2(scene in scenes()) {
        check(&scene, &scene.sentences());
    }

    #[test]
    fn a_sentence_adds_up_for_torch_1(scene in scenes()) {
        check(&scene, &scene.brackets());
    }
}
