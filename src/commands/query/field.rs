//! A field of `--query-gpu` or `--query-compute-apps`: its names, its unit and its line of help.

use std::fmt::Write;

/// A field that can be queried. `F` is the function that reads its value.
pub(super) struct QueryField<F> {
    /// All names, separated by spaces. The first one is printed in the header.
    names: String,
    pub(super) unit: &'static str,
    help: &'static str,
    pub(super) value: F,
}

impl<F> QueryField<F> {
    pub(super) fn new(names: impl Into<String>, unit: &'static str, help: &'static str, value: F) -> Self {
        Self { names: names.into(), unit, help, value }
    }

    /// The name and unit as the header has them: `memory.used [MiB]`.
    pub(super) fn header(&self) -> String {
        let name = self.names.split(' ').next().unwrap_or_default();
        if self.unit.is_empty() { name.to_owned() } else { format!("{name} [{}]", self.unit) }
    }
}

/// Returns the fields with these names, or the first name that no field has.
pub(super) fn select<F>(all: fn() -> Vec<QueryField<F>>, names: &[String]) -> Result<Vec<QueryField<F>>, String> {
    let find = |name: &String| {
        let is_named = |field: &QueryField<F>| field.names.split(' ').any(|alias| alias == name.trim());
        all().into_iter().find(is_named).ok_or_else(|| name.trim().to_owned())
    };
    names.iter().map(find).collect()
}

/// Returns the help: `title`, then the names of each field and the sentence on it.
pub(super) fn help<F>(title: &str, all: fn() -> Vec<QueryField<F>>) -> String {
    let mut text = format!("{title}:\n");
    for field in all() {
        let names = field.names.replace(' ', "\" or \"");
        let _infallible: std::fmt::Result = write!(text, "\n\"{names}\"\n{}\n", field.help);
    }
    text
}
