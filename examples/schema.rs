//! Prints the JSON Schema of the agent's lines, which is the content of `assets/schema.json`.

use std::io::{self, Write};

fn main() -> anyhow::Result<()> {
    let schema = serde_json::to_string_pretty(&gputop::protocol::line::schema())?;
    Ok(writeln!(io::stdout(), "{schema}")?)
}
