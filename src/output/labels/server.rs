//! Inference servers: the model and the port that their command lines name.

use crate::base::text::Argv;

/// An inference server, and how its command line names the model and the port.
struct ServerRow {
    name: &'static str,
    /// The program: one of the first three arguments, or the file name of one.
    mark: &'static str,
    /// The flags before the model. A model may also follow the word `serve`.
    model: &'static [&'static str],
    /// The port without the flag `--port`; `None` where each run has another one.
    usual_port: Option<&'static str>,
}

const SERVERS: [ServerRow; 5] = [
    // vllm serve meta-llama/Llama-3.1-8B --port 8001
    ServerRow {
        name: "vLLM",
        mark: "vllm",
        model: &["--model"],
        usual_port: Some("8000"),
    },
    // python -m vllm.entrypoints.openai.api_server --model mistralai/Mistral-7B
    ServerRow {
        name: "vLLM",
        mark: "vllm.entrypoints.openai.api_server",
        model: &["--model"],
        usual_port: Some("8000"),
    },
    // python -m sglang.launch_server --model-path Qwen/Qwen2-7B --port 30001
    ServerRow {
        name: "SGLang",
        mark: "sglang.launch_server",
        model: &["--model-path", "--model"],
        usual_port: Some("30000"),
    },
    // ollama runner --model /root/.ollama/models/blobs/sha256-6a0746a1ec1a --port 40123
    ServerRow {
        name: "Ollama",
        mark: "ollama",
        model: &["--model"],
        usual_port: None,
    },
    // text-generation-launcher --model-id bigscience/bloom --port 3000
    ServerRow {
        name: "TGI",
        mark: "text-generation-launcher",
        model: &["--model-id"],
        usual_port: Some("3000"),
    },
];

/// The longest name of a model that is shown whole, in characters.
const LONGEST_MODEL: usize = 32;

/// Returns the server, its model and its port, as far as the command line names them: `vLLM
/// Llama-3.1-8B :8001`. `None` for a process that is no inference server, or names no model.
pub(crate) fn served(argv: &Argv) -> Option<String> {
    let row = SERVERS.iter().find(|row| {
        let is_mark = |argument: &str| argument.rsplit('/').next() == Some(row.mark);
        argv.iter().take(3).any(is_mark)
    })?;
    let flag = row.model.iter().find_map(|flag| after(argv, flag));
    let model = flag.or_else(|| after(argv, "serve"))?;
    // The owner of a model, and the folder of a file, say less.
    let model = model.rsplit('/').next().unwrap_or(model);
    let model: String = model.chars().take(LONGEST_MODEL).collect();
    let port = after(argv, "--port").or(row.usual_port);
    let port = port.map_or_else(String::new, |port| format!(" :{port}"));
    Some(format!("{} {model}{port}", row.name))
}

/// Returns the argument after a flag, or the text after its `=`.
fn after<'a>(argv: &'a Argv, flag: &str) -> Option<&'a str> {
    let mut arguments = argv.iter();
    while let Some(argument) = arguments.next() {
        if argument == flag {
            return arguments.next().filter(|value| !value.starts_with('-'));
        }
        let value = argument
            .strip_prefix(flag)
            .and_then(|rest| rest.strip_prefix('='));
        if value.is_some() {
            return value;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::text::Text;

    #[test]
    fn the_command_line_of_each_server_names_its_model_and_port() {
        let shown = |line: &str| served(&line.split(' ').map(Text::from).collect());
        for (line, expected) in [
            (
                "/opt/venv/bin/python /opt/venv/bin/vllm serve meta-llama/Llama-3.1-8B --port 8001",
                "vLLM Llama-3.1-8B :8001",
            ),
            (
                "python -m vllm.entrypoints.openai.api_server --model mistralai/Mistral-7B",
                "vLLM Mistral-7B :8000",
            ),
            (
                "python -m sglang.launch_server --model-path=Qwen/Qwen2-7B --port=30001",
                "SGLang Qwen2-7B :30001",
            ),
            (
                "/usr/bin/ollama runner --model /root/.ollama/models/blobs/sha256-6a0746 --port 40123",
                "Ollama sha256-6a0746 :40123",
            ),
            (
                "text-generation-launcher --model-id bigscience/bloom",
                "TGI bloom :3000",
            ),
        ] {
            assert_eq!(shown(line).as_deref(), Some(expected), "{line}");
        }
        for line in [
            "python train.py --model vllm --port 8000",
            "ollama serve --port 7",
            "vim /home/a/vllm",
        ] {
            assert_eq!(shown(line), None, "{line}");
        }
    }
}
