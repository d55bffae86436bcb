//! The command line of the user's ssh, and the options that the user may add to it.

use super::UsedMaster;
use super::host_name::HostName;
use crate::base::text::Text;

/// The options that protect the user's sessions and this connection. ssh takes the first value of
/// each `-o`, so these stand before those of the user.
const PROTECTING: [&str; 18] = [
    "-T",
    "-C",
    "-x",
    "-a",
    "-o",
    "BatchMode=yes",
    "-o",
    "ControlMaster=no",
    "-o",
    "RemoteCommand=none",
    "-o",
    "RequestTTY=no",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "UpdateHostKeys=no",
    "-o",
    "PermitLocalCommand=no",
];

/// The options that the user's own replace.
const REPLACEABLE: [&str; 6] = [
    "-o",
    "ConnectTimeout=5",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
];

/// The options of one letter that the user may add: how a host is reached, and with which key. An
/// option such as `-f`, `-t` or `-M` would change the session that gputop needs.
const FLAGS: &str = "46CKTaqvx";
const FLAGS_WITH_VALUE: &str = "BbcEFIiJlmopSP";

/// Settings of `-o`, in lower case, that the user may not change here, each with the reason.
const REFUSED_SETTINGS: [(&str, &str); 5] = [
    (
        "controlmaster",
        "gputop never becomes or makes a master of yours",
    ),
    (
        "controlpersist",
        "gputop never becomes or makes a master of yours",
    ),
    ("forkafterauthentication", "gputop reads the output of ssh"),
    ("sessiontype", "gputop starts a command on the host"),
    ("stdinnull", "gputop writes to the input of ssh"),
];

/// The options of ssh that the user adds, which were checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SshOptions(Vec<String>);

impl SshOptions {
    /// Checks options.
    ///
    /// # Errors
    ///
    /// When one may not stand here: a sentence.
    pub(crate) fn new(words: Vec<String>) -> Result<Self, String> {
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let letters = word
                .strip_prefix('-')
                .filter(|letters| !letters.is_empty() && !letters.starts_with('-'))
                .ok_or_else(|| {
                    format!(
                        "`{}` is no option of ssh; gputop adds the host",
                        Text::new(word)
                    )
                })?;
            let end = letters.find(|letter| !FLAGS.contains(letter));
            let Some(end) = end else { continue };
            let letter = letters[end..].chars().next().unwrap_or_default();
            if !FLAGS_WITH_VALUE.contains(letter) {
                return Err(format!(
                    "`-{}` may not be among the options of ssh: {}",
                    Text::new(letter.to_string()),
                    if letter == 'M' {
                        REFUSED_SETTINGS[0].1
                    } else {
                        "it would change the session that gputop needs"
                    }
                ));
            }
            let value = match &letters[end + letter.len_utf8()..] {
                "" => rest.next().ok_or_else(|| {
                    format!(
                        "`{}` lacks its value, which follows as a text of its own",
                        Text::new(word)
                    )
                })?,
                value => value,
            };
            if letter == 'o' {
                check_setting(value)?;
            }
        }
        Ok(Self(words))
    }

    /// The words, in the order in which they were given.
    pub(crate) fn words(&self) -> &[String] {
        &self.0
    }
}

/// Checks `NAME=VALUE` or `NAME VALUE` of `-o`.
fn check_setting(text: &str) -> Result<(), String> {
    let name = text
        .trim_start()
        .split(|letter: char| letter == '=' || letter.is_whitespace())
        .next()
        .unwrap_or_default()
        .trim_matches('"')
        .to_ascii_lowercase();
    match REFUSED_SETTINGS
        .iter()
        .find(|(refused, _)| *refused == name)
    {
        None => Ok(()),
        Some((_, why)) => Err(format!(
            "`{}` may not be among the options of ssh: {why}",
            Text::new(text)
        )),
    }
}

/// Returns the arguments of `ssh` up to the name of the host; the command for the host follows.
pub(super) fn arguments(host: &HostName, options: &SshOptions, master: &UsedMaster) -> Vec<String> {
    let mut all: Vec<String> = PROTECTING.map(str::to_owned).into();
    let path = match master {
        UsedMaster::Configured => None,
        UsedMaster::Own(socket) => Some(socket.display().to_string()),
        UsedMaster::None => Some("none".to_owned()),
    };
    all.extend(
        path.into_iter()
            .flat_map(|path| ["-o".to_owned(), format!("ControlPath={path}")]),
    );
    all.extend(port(host));
    all.extend_from_slice(options.words());
    all.extend(REPLACEABLE.map(str::to_owned));
    all.extend(["--", host.destination()].map(str::to_owned));
    all
}

/// Returns the command that connects its input and output to `HOST:PORT`, from a host.
pub(super) fn forwarding(host: &HostName, options: &SshOptions, target: &str) -> Vec<String> {
    let mut all = arguments(host, options, &UsedMaster::Configured);
    // The options end before `--`, which is in front of the name.
    let end = all.len().saturating_sub(2);
    all.splice(end..end, ["-W", target].map(str::to_owned));
    all.insert(0, "ssh".to_owned());
    all
}

/// Returns the arguments of `ssh` that say how a host is reached, and its name.
pub(super) fn destination_arguments(host: &HostName, options: &SshOptions) -> Vec<String> {
    let mut all: Vec<String> = port(host).collect();
    all.extend_from_slice(options.words());
    all.extend(["--", host.destination()].map(str::to_owned));
    all
}

/// Returns the arguments of `ssh` that print its configuration for a host.
pub(super) fn configuration_arguments(host: &HostName, options: &SshOptions) -> Vec<String> {
    let mut all = vec!["-G".to_owned()];
    all.extend(destination_arguments(host, options));
    all
}

/// Returns the words with which a person reaches a host: `ssh -p 2222 gpu-01`.
pub(crate) fn of_a_person(host: &HostName, options: &SshOptions) -> Vec<String> {
    let mut all = vec!["ssh".to_owned()];
    all.extend(port(host));
    all.extend_from_slice(options.words());
    all.push(host.destination().to_owned());
    all
}

fn port(host: &HostName) -> impl Iterator<Item = String> + use<> {
    let port = host.port().map(|port| ["-p".to_owned(), port.to_string()]);
    port.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<SshOptions, String> {
        SshOptions::new(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn the_users_options_stand_between_those_that_protect_and_those_that_they_replace() {
        let options = options(&["-o", "ConnectTimeout=10"]).unwrap();
        let host = "alice@gpu-01:2222".parse().unwrap();
        assert_eq!(
            arguments(&host, &options, &UsedMaster::Configured).join(" "),
            "-T -C -x -a -o BatchMode=yes -o ControlMaster=no -o RemoteCommand=none -o RequestTTY=no \
             -o ClearAllForwardings=yes -o UpdateHostKeys=no -o PermitLocalCommand=no -p 2222 -o ConnectTimeout=10 \
             -o ConnectTimeout=5 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -- alice@gpu-01"
        );
        let without_master = arguments(&host, &options, &UsedMaster::None).join(" ");
        assert!(
            without_master.contains("PermitLocalCommand=no -o ControlPath=none -p 2222"),
            "{without_master}"
        );
        assert_eq!(
            configuration_arguments(&host, &options).join(" "),
            "-G -p 2222 -o ConnectTimeout=10 -- alice@gpu-01"
        );
        assert_eq!(
            of_a_person(&host, &options).join(" "),
            "ssh -p 2222 -o ConnectTimeout=10 alice@gpu-01"
        );
        let forwarding = forwarding(&host, &options, "prom:9090").join(" ");
        assert!(
            forwarding.starts_with("ssh -T -C")
                && forwarding.ends_with("-o ServerAliveCountMax=3 -W prom:9090 -- alice@gpu-01"),
            "{forwarding}"
        );
    }

    #[test]
    fn options_that_say_how_a_host_is_reached_are_accepted() {
        for words in [
            &["-J", "login", "-p", "22", "-l", "alice", "-F", "/etc/lab"][..],
            &["-Jlogin", "-4vi", "key", "-oProxyJump=login"],
            &["-o", "ControlPath=/run/x", "-S", "/run/x"],
            &["-o", "UserKnownHostsFile=/a b"],
            &[],
        ] {
            assert!(options(words).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn options_that_change_the_session_are_refused() {
        for (words, reason) in [
            (
                &["-o", "ControlMaster=auto"][..],
                "never becomes or makes a master",
            ),
            (&["-oControlMaster=auto"], "never becomes or makes a master"),
            (
                &["-o", "controlmaster yes"],
                "never becomes or makes a master",
            ),
            (
                &["-o", " \"ControlPersist\" 10m"],
                "never becomes or makes a master",
            ),
            (&["-4oControlPersist=1"], "never becomes or makes a master"),
            (
                &["-4o", "CONTROLPERSIST=1"],
                "never becomes or makes a master",
            ),
            (
                &["-M"],
                "`-M` may not be among the options of ssh: gputop never becomes",
            ),
            (&["-CM"], "`-M` may not be"),
            (&["-f"], "`-f` may not be"),
            (&["-tt"], "`-t` may not be"),
            (&["-A"], "`-A` may not be"),
            (&["-N"], "`-N` may not be"),
            (&["-o", "StdinNull=yes"], "writes to the input of ssh"),
            (&["-o"], "lacks its value"),
            (&["-i", "key", "gpu-01"], "`gpu-01` is no option of ssh"),
            (&["--"], "`--` is no option of ssh"),
            (&["-"], "`-` is no option of ssh"),
            (&[""], "`` is no option of ssh"),
            (&["-é"], "`-é` may not be"),
        ] {
            let why = options(words).unwrap_err();
            assert!(why.contains(reason), "{words:?}: {why}");
        }
    }
}
