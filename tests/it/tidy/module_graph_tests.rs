//! The module graph of small made-up crates.

use super::module_graph::{Circle, ModuleGraph};
use super::module_paths::SourceFile;

fn graph(files: &[(&str, &str)]) -> ModuleGraph {
    let file = |(path, text): &(&str, &str)| SourceFile {
        path: format!("src/{path}"),
        text: (*text).to_owned(),
    };
    ModuleGraph::read(&files.iter().map(file).collect::<Vec<_>>())
}

/// The circles, as folder and members.
fn circles(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let name = |circle: Circle| (circle.folder, circle.members.join(" "));
    graph(files).circles().into_iter().map(name).collect()
}

#[track_caller]
fn check(files: &[(&str, &str)], expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(folder, members)| ((*folder).to_owned(), (*members).to_owned()))
        .collect();
    assert_eq!(circles(files), expected);
}

#[test]
fn modules_that_use_each_other_one_way_are_no_circle() {
    check(
        &[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub struct One;"),
            ("b.rs", "use crate::a::One; pub fn two() -> One { One }"),
            (
                "c.rs",
                "use crate::{a, b}; fn three() -> a::One { b::two() }",
            ),
        ],
        &[],
    );
}

#[test]
fn two_modules_that_use_each_other_are_a_circle() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct One;\nfn f() { crate::b::two() }"),
        ("b.rs", "use crate::a::One;\n\npub fn two() {}"),
    ];
    let circles = graph(&files).circles();
    assert_eq!(circles.len(), 1);
    assert_eq!(
        circles[0].chains,
        ["  a\n    -> b   src/a.rs:2: crate::b::two\n    -> a   src/b.rs:1: crate::a::One"]
    );
}

#[test]
fn a_circle_over_three_modules_is_found_and_a_bystander_is_not_in_it() {
    check(
        &[
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::a; use crate::d::D; pub struct C;"),
            ("d.rs", "pub struct D;"),
            ("e.rs", "use crate::a;"),
        ],
        &[("", "a b c")],
    );
}

#[test]
fn a_file_counts_with_its_subfolder() {
    check(
        &[
            ("f.rs", "mod a; mod b;"),
            ("f/a.rs", "mod inner;"),
            ("f/a/inner.rs", "use crate::f::b::B;"),
            ("f/b.rs", "mod inner; pub struct B;"),
            ("f/b/inner.rs", "use crate::f::a;"),
        ],
        &[("f", "a b")],
    );
}

#[test]
fn a_re_export_counts_as_use_of_the_module_that_defines_the_item() {
    check(
        &[
            ("f.rs", "mod a; mod b; pub use b::B;"),
            ("f/a.rs", "use super::B; pub struct A;"),
            ("f/b.rs", "use super::a::A; pub struct B;"),
        ],
        &[("f", "a b")],
    );
}

#[test]
fn a_re_export_with_another_name_or_a_glob_is_followed() {
    check(
        &[
            (
                "f.rs",
                "mod a; mod b; mod c; pub use b::B as Bee; pub use c::*;",
            ),
            (
                "f/a.rs",
                "fn f(_: crate::f::Bee, _: super::C) {} pub struct A;",
            ),
            ("f/b.rs", "use super::a::A; pub struct B;"),
            ("f/c.rs", "use super::a; pub struct C;"),
        ],
        &[("f", "a b c")],
    );
}

#[test]
fn parent_and_child_may_use_each_other() {
    check(
        &[
            ("f.rs", "mod a; mod b; pub struct F; pub fn f() { a::a(); }"),
            ("f/a.rs", "use super::F; use super::b::B; pub fn a() {}"),
            ("f/b.rs", "use crate::f::F; pub struct B(super::F);"),
        ],
        &[],
    );
}

#[test]
fn a_name_that_the_parent_imports_counts_as_use_of_where_it_comes_from() {
    check(
        &[
            ("f.rs", "mod a; mod b; use b::B;"),
            ("f/a.rs", "use super::*; pub fn a(_: B) {}"),
            ("f/b.rs", "fn f() { super::a::a(todo!()) } pub struct B;"),
        ],
        &[("f", "a b")],
    );
}

#[test]
fn paths_in_macros_attributes_and_function_bodies_count() {
    for text in [
        "fn f() { println!(\"{}\", crate::b::two()); }",
        "fn f() { assert!([1].iter().all(|n| super::b::two() == *n)); }",
        "struct S { #[serde(with = \"crate::b\")] field: u8 }",
        "macro_rules! m { () => { mod inner { use super::super::b::two; } } }",
        "fn f() { use crate::b; b::two() }",
        "fn f() -> impl Iterator<Item = crate::b::Two> {}",
    ] {
        let files = [
            ("lib.rs", ""),
            ("a.rs", text),
            ("b.rs", "use crate::a; pub struct Two;"),
        ];
        assert_eq!(
            circles(&files),
            [(String::new(), "a b".to_owned())],
            "{text}"
        );
    }
}

#[test]
fn tests_may_use_everything() {
    check(
        &[
            (
                "a.rs",
                "pub struct A; #[cfg(test)] mod tests { use crate::b::B; } #[cfg(test)] fn f() { crate::b::B; }",
            ),
            ("b.rs", "use crate::a::A; pub struct B;"),
            ("c.rs", "#[cfg(test)] mod tests; pub struct C;"),
            ("c/tests.rs", "mod deep; use crate::d::D;"),
            ("c/tests/deep.rs", "use crate::d::D;"),
            ("d.rs", "use crate::c::C; pub struct D;"),
        ],
        &[],
    );
}

#[test]
fn names_of_other_crates_and_globs_in_a_ring_end() {
    check(
        &[
            (
                "a.rs",
                "pub use super::b::*; use std::fmt::Write; fn f(_: Nowhere, _: serde::de::Error) {}",
            ),
            ("b.rs", "use serde_json::Value; pub struct B;"),
            ("f.rs", "mod a; use self::a::*;"),
            ("f/a.rs", "use super::*; fn f(_: Nowhere) {}"),
        ],
        &[],
    );
}
