//! Finds the destination in a command that connects to another host, container or node.

/// How a program names its destination.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The first argument that is no option, as in `ssh USER@HOST`. A shell there splits the rest
    /// of the command again.
    FirstArgument,
    /// The argument after this one, as in `kubectl exec POD`.
    AfterVerb(&'static str),
    /// The value of one of these options, as in `srun -w NODE`: a short one, and long ones with the
    /// words before the value.
    OptionValue(&'static str, &'static [(&'static str, &'static str)]),
}

/// A program that runs a command elsewhere.
#[derive(Debug)]
struct Connector {
    names: &'static [&'static str],
    form: Form,
    /// The letters of the options that take a value.
    letters: &'static str,
    /// The long options that take a value, also as the next argument.
    long_options: &'static [&'static str],
}

/// The programs, with their options from their manuals.
const CONNECTORS: &[Connector] = &[
    Connector {
        names: &["ssh"],
        form: Form::FirstArgument,
        letters: "BDEFIJLOPQRSWbceilmopw",
        long_options: &[],
    },
    Connector {
        names: &["kubectl", "oc"],
        form: Form::AfterVerb("exec"),
        letters: "cfnsv",
        long_options: &[
            "as",
            "as-group",
            "as-uid",
            "cache-dir",
            "certificate-authority",
            "client-certificate",
            "client-key",
            "cluster",
            "container",
            "context",
            "filename",
            "kubeconfig",
            "namespace",
            "password",
            "pod-running-timeout",
            "profile",
            "request-timeout",
            "server",
            "tls-server-name",
            "token",
            "user",
            "username",
            "v",
            "vmodule",
        ],
    },
    Connector {
        names: &["docker", "podman", "nerdctl"],
        form: Form::AfterVerb("exec"),
        letters: "Hcefpluw",
        long_options: &[
            "config",
            "connection",
            "context",
            "detach-keys",
            "env",
            "env-file",
            "file",
            "host",
            "index",
            "log-level",
            "namespace",
            "profile",
            "project-directory",
            "project-name",
            "tlscacert",
            "tlscert",
            "tlskey",
            "url",
            "user",
            "workdir",
        ],
    },
    Connector {
        names: &["srun"],
        form: Form::OptionValue("-w", &[("--nodelist", ""), ("--jobid", "job ")]),
        letters: "",
        long_options: &[],
    },
];

/// Returns the destination in a command: of the command that runs there, too, as in `ssh HOST
/// docker exec CONTAINER …`, which is `HOST/CONTAINER`. Returns `None` if no known program with a
/// destination is in it.
pub(super) fn destination(words: &[String]) -> Option<String> {
    let known = words
        .iter()
        .enumerate()
        .find_map(|(place, word)| Some((place, connector(word)?)));
    let (place, connector) = known?;
    let (found, rest) = connector.destination(&words[place + 1..])?;
    let there = match connector.form {
        Form::FirstArgument => shell_words::split(&rest.join(" "))
            .ok()
            .and_then(|words| destination(&words)),
        Form::AfterVerb(_) | Form::OptionValue(..) => destination(rest),
    };
    Some(there.map_or_else(|| found.clone(), |there| format!("{found}/{there}")))
}

/// Returns the program that a word of a command names.
fn connector(word: &str) -> Option<&'static Connector> {
    // In `env A=/b/ssh`, the word is a variable.
    let name = word.rsplit('/').next().filter(|_| !word.contains('='))?;
    CONNECTORS
        .iter()
        .find(|connector| connector.names.contains(&name))
}

impl Connector {
    /// Returns the destination, and the arguments after it.
    fn destination<'a>(&self, arguments: &'a [String]) -> Option<(String, &'a [String])> {
        match self.form {
            Form::FirstArgument => {
                let (place, word) = self.plain_arguments(arguments).next()?;
                Some((host_of(word).to_owned(), &arguments[place + 1..]))
            }
            Form::AfterVerb(verb) => {
                let mut plain = self.plain_arguments(arguments);
                plain.find(|(_, word)| *word == verb)?;
                let (place, word) = plain.next()?;
                Some((word.to_owned(), &arguments[place + 1..]))
            }
            Form::OptionValue(short, long) => {
                let value = |place: usize, inline: Option<&'a str>| match inline {
                    Some(value) => Some((value, &arguments[place + 1..])),
                    None => Some((
                        arguments.get(place + 1)?.as_str(),
                        arguments.get(place + 2..)?,
                    )),
                };
                let find = |option: &str, is_short: bool| {
                    arguments.iter().enumerate().find_map(|(place, word)| {
                        match word.strip_prefix(option)? {
                            "" => value(place, None),
                            rest if is_short => value(place, Some(rest)),
                            rest => value(place, Some(rest.strip_prefix('=')?)),
                        }
                    })
                };
                let named = |prefix: &str, (value, rest): (&str, &'a [String])| {
                    (format!("{prefix}{value}"), rest)
                };
                let long = || {
                    long.iter()
                        .find_map(|(option, prefix)| Some(named(prefix, find(option, false)?)))
                };
                find(short, true)
                    .map(|found| named("", found))
                    .or_else(long)
            }
        }
    }

    /// The arguments that are neither an option nor the value of one, each with its place.
    fn plain_arguments<'a>(
        &self,
        arguments: &'a [String],
    ) -> impl Iterator<Item = (usize, &'a str)> {
        let mut is_value = false;
        let mut are_options_over = false;
        arguments
            .iter()
            .enumerate()
            .filter_map(move |(place, word)| {
                if std::mem::take(&mut is_value) {
                    return None;
                }
                if are_options_over || !word.starts_with('-') || word == "-" {
                    return Some((place, word.as_str()));
                }
                match word.strip_prefix("--") {
                    Some("") => are_options_over = true,
                    Some(option) => is_value = self.long_options.contains(&option),
                    // The letters after one that takes a value are its value.
                    None => {
                        is_value = word[1..].find(|letter| self.letters.contains(letter))
                            == Some(word.len() - 2);
                    }
                }
                None
            })
    }
}

/// The host in `USER@HOST` or `ssh://USER@HOST:PORT`.
fn host_of(destination: &str) -> &str {
    let uri = destination.strip_prefix("ssh://");
    let host = uri.unwrap_or(destination);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    match uri.and_then(|_| host.trim_end_matches('/').rsplit_once(':')) {
        Some((host, port)) if port.chars().all(|digit| digit.is_ascii_digit()) => host,
        _ => host.trim_end_matches('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command, and the destination in it; `-` if there is none.
    const EXAMPLES: &[(&str, &str)] = &[
        ("ssh gpu-1 gputop agent", "gpu-1"),
        (
            "/usr/bin/ssh -p 2222 -vi key alice@gpu-1 gputop agent",
            "gpu-1",
        ),
        (
            "ssh -TCo BatchMode=yes -J login -l alice -- gpu-1 gputop agent",
            "gpu-1",
        ),
        ("ssh -p2222 -oBatchMode=yes gpu-1", "gpu-1"),
        ("ssh ssh://alice@gpu-1.lab:2222 gputop agent", "gpu-1.lab"),
        ("ssh alice@fe80::1 gputop agent", "fe80::1"),
        ("ssh ssh gputop agent", "ssh"),
        (
            "env SSH=/usr/bin/ssh timeout 60 ssh gpu-1 gputop agent",
            "gpu-1",
        ),
        ("kubectl exec -i trainer-0 -- gputop agent", "trainer-0"),
        (
            "kubectl --context lab -n team exec -ic main deploy/trainer -- gputop agent",
            "deploy/trainer",
        ),
        (
            "oc exec --namespace=team --container main trainer-0 -- gputop agent",
            "trainer-0",
        ),
        ("docker exec -i trainer gputop agent", "trainer"),
        (
            "docker -H tcp://gpu-1 exec -iu root -e A=b --workdir /tmp trainer gputop agent",
            "trainer",
        ),
        (
            "docker compose -f lab.yml exec -T trainer gputop agent",
            "trainer",
        ),
        ("podman container exec -i trainer gputop agent", "trainer"),
        (
            "srun --overlap --jobid 4711 -N1 -w gpu-1 -n1 --gres=gpu:0 gputop agent",
            "gpu-1",
        ),
        ("srun --jobid=4711 --nodelist=gpu-1 gputop agent", "gpu-1"),
        ("srun --jobid 4711 -wgpu-1 gputop agent", "gpu-1"),
        ("srun --overlap --jobid 4711 gputop agent", "job 4711"),
        (
            "ssh login srun --jobid 4711 -w gpu-1 gputop agent",
            "login/gpu-1",
        ),
        (
            "ssh gpu-1 'docker exec -i trainer gputop agent'",
            "gpu-1/trainer",
        ),
        ("nerdctl exec -i trainer gputop agent", "trainer"),
        ("docker run -i image gputop agent", "-"),
        ("kubectl get pods", "-"),
        ("srun gputop agent", "-"),
        ("ssh", "-"),
        ("ssh -p", "-"),
        ("srun -w", "-"),
        ("./connect gpu-1", "-"),
    ];

    #[test]
    fn the_destination_is_found_in_the_command() {
        for (command, expected) in EXAMPLES {
            let words = shell_words::split(command).unwrap();
            assert_eq!(
                destination(&words).as_deref().unwrap_or("-"),
                *expected,
                "{command}"
            );
        }
        for name in CONNECTORS.iter().flat_map(|connector| connector.names) {
            assert!(
                EXAMPLES.iter().any(|(command, _)| command.contains(name)),
                "{name} has no example"
            );
        }
    }
}
