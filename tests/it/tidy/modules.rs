//! Which module may use which, checked on the real module graph.

use std::sync::OnceLock;

use super::module_graph::{Circle, ModuleGraph};
use super::module_paths::SourceFile;

/// The modules at the top of `src` and what each may use: the table of ARCHITECTURE.md.
const MAY_USE: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("protocol", &["base"]),
    ("files", &["base"]),
    ("agent", &["base", "files", "protocol"]),
    ("source", &["base", "protocol"]),
    ("model", &["base", "protocol"]),
    ("output", &["base", "model", "protocol"]),
    ("app", &["base", "model", "output", "protocol"]),
    ("view", &["app", "base", "model", "output", "protocol"]),
    ("notify", &["base"]),
    (
        "tui",
        &[
            "app", "base", "files", "model", "notify", "output", "protocol", "source", "view",
        ],
    ),
    ("flags", &["base", "protocol", "source"]),
    (
        "logs",
        &[
            "base", "files", "flags", "model", "output", "protocol", "source",
        ],
    ),
    (
        "hidden_commands",
        &["base", "files", "model", "output", "protocol", "source"],
    ),
    (
        "commands",
        &[
            "agent", "app", "base", "files", "flags", "logs", "model", "notify", "output",
            "protocol", "source", "view",
        ],
    ),
    (
        "cli",
        &[
            "agent", "app", "base", "commands", "files", "flags", "logs", "output", "protocol",
            "source",
        ],
    ),
    (
        "config",
        &[
            "app", "base", "cli", "commands", "files", "notify", "output", "protocol", "source",
            "tui", "view",
        ],
    ),
    (
        "lib",
        &[
            "agent",
            "cli",
            "commands",
            "config",
            "files",
            "hidden_commands",
            "logs",
            "output",
            "protocol",
            "source",
            "tui",
        ],
    ),
    ("fuzz", &["agent", "logs", "source"]),
    ("main", &["base", "cli", "lib", "output"]),
];

/// The only commands that may use the agent's code: the others ask an agent for what they need.
const COMMANDS_WITH_AGENT: &[&str] = &["attach", "doctor"];

fn graph() -> &'static ModuleGraph {
    static GRAPH: OnceLock<ModuleGraph> = OnceLock::new();
    GRAPH.get_or_init(|| {
        let files = super::product().into_iter();
        let file = |source: super::Source| SourceFile {
            path: source.path.display().to_string(),
            text: source.text,
        };
        ModuleGraph::read(&files.map(file).collect::<Vec<_>>())
    })
}

#[test]
fn modules_use_only_what_they_may() {
    let mut broken = Vec::new();
    for ((from, to), usage) in graph().uses_between_folders() {
        match MAY_USE.iter().find(|(name, _)| *name == from) {
            None => broken.push(format!("`{from}` is not in the table")),
            Some((_, allowed)) if allowed.contains(&to.as_str()) => {}
            Some(_) => broken.push(format!("`{from}` may not use `{to}`: {}", usage.place)),
        }
    }
    super::check("a module uses only what its row of MAY_USE names", &broken);
}

#[test]
fn only_doctor_and_attach_use_the_agent() {
    let usages = graph().usages.iter().filter(|usage| {
        usage
            .from
            .first()
            .is_some_and(|folder| folder == "commands")
            && usage.to.first().is_some_and(|folder| folder == "agent")
            && usage
                .from
                .get(1)
                .is_none_or(|command| !COMMANDS_WITH_AGENT.contains(&command.as_str()))
    });
    let broken: Vec<String> = usages.map(|usage| usage.place.to_string()).collect();
    super::check(
        "a command asks an agent; only doctor and attach use the agent's code",
        &broken,
    );
}

#[test]
fn the_table_of_modules_has_no_circle_and_no_unknown_module() {
    let folders = graph().folders();
    let unknown: Vec<_> = MAY_USE
        .iter()
        .filter(|(name, _)| !folders.contains(*name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let mut left: Vec<_> = MAY_USE.iter().collect();
    loop {
        let before = left.len();
        let open: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
        left.retain(|(_, may_use)| may_use.iter().any(|name| open.contains(name)));
        if left.len() == before {
            break;
        }
    }
    assert!(
        left.is_empty(),
        "these may use each other in a circle: {left:?}"
    );
}

#[test]
fn no_modules_of_one_folder_use_each_other_in_a_circle() {
    let describe =
        |Circle {
             folder,
             members,
             chains,
         }: Circle| { format!("({folder:?}, {members:?}):\n{}", chains.join("\n")) };
    let circles: Vec<String> = graph().circles().into_iter().map(describe).collect();
    super::check(
        "modules of one folder may not use each other in a circle",
        &circles,
    );
}
