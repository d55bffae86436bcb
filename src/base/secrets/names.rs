//! Decides by the name of an option, a variable or a field whether its value is a secret. Compares
//! whole words: `--secretary` and `--tokenizer` name no secrets.

/// Words that name a secret.
const SECRETS: &str = "password passwd passphrase passcode pass pwd secret credential credentials cred creds authorization jwt \
    cookie cookies psk otp bearer sas";
/// Ends of words that name a secret, as in `rpcpassword` and `sshpass`.
const SECRET_ENDINGS: [&str; 6] = ["password", "passwd", "passphrase", "secret", "pass", "pwd"];
/// Words with such an ending that name no secret.
const HARMLESS_PASSES: &str = "bypass compass encompass overpass underpass trespass surpass lowpass highpass bandpass allpass \
    multipass singlepass onepass twopass subpass nonsecret";
/// Words before `pass` that make it a round, as in `--two-pass`.
const ROUNDS: &str = "multi single one two first second forward backward num n low high band all per render full final by";
/// Words after the name of a secret that do not change what it is, as in `SECRET_KEY_BASE`.
const NEUTRAL_ENDS: &str =
    "value string text data plain plaintext raw base base64 b64 hex hash old new current confirm";
/// The last words of names of things that describe a secret, as in `PASSWORD_FILE`.
const DESCRIPTIONS: &str = "file files path paths dir directory folder type name names length len size policy id ids arn url uri \
    host env var variable command cmd prompt stdin fd index count limit min max strength rotation expiry expire expires expiration \
    ttl timeout lifetime age version format encoding encryption algorithm alg kind class column label field map required enabled \
    helper provider manager store mode method list stream words generator source user username dim budget header";

/// Words before `key` with which it is a secret.
const KEYS: &str = "api access secret private auth account encryption decryption master storage admin app \
    application subscription setup activation enrollment webhook deploy client root session recovery license aes hmac preshared shared consumer service \
    openai anthropic claude hf huggingface wandb comet neptune aws gcp azure google gemini mistral groq cohere stripe twilio \
    sendgrid mailgun datadog dd sentry linear notion pinecone langchain langsmith tavily serper serpapi together replicate \
    fireworks deepseek openrouter nvidia nim ngc kaggle roboflow ultralytics weaviate qdrant mongo clearml mlflow \
    cloudflare algolia newrelic pagerduty airtable elevenlabs perplexity voyage jina xai dashscope zhipu";
/// Words before `key` or `token` with which it is no secret.
const HARMLESS: &str = "pad eos bos unk mask sep cls image stop special max min num n per new add prompt next start end audio \
    video sort label text input output response reward fn monitor primary foreign public batch group cache metric dict column \
    data query target answer question messages placeholder initializer class instance modifier think register speaker draft lang \
    language domain trigger concept object routing partition shard idempotency storage_class row index lookup hash map json state \
    model layer hidden attention value kv host lora request page continuation starting sync resume";
/// Words before `token` with which it is a secret.
const TOKENS: &str = "auth access api hf hub huggingface github gh gitlab bitbucket git bot wandb slack telegram discord refresh \
    session id personal pat oauth jwt csrf xsrf deploy registry npm pypi vault service account security aws login secret app \
    application client write read admin device push notebook server influx influxdb jira sonar codecov snyk digitalocean do \
    cloudflare cf fly vercel netlify heroku replicate upload download zenodo dataverse kaggle modal bearer k8s kube kubeconfig kubernetes env config settings \
    connection provider gateway jupyter join node worker agent runner webhook api2 identity web user master root sas mfa temp private ngrok tunnel \
    plex grafana splunk hec";

/// The first words of options that take no value, as in `--use-auth-token`.
const SWITCHES: &str = "use no enable disable skip require allow with ask has is need show hide print get force without check list export import \
    delete generate gen recv";
/// Values that are no secrets, whatever their name.
const HARMLESS_VALUES: &str = "true false none null nil yes no on off auto default required optional disabled enabled prompt ask \
    stdin empty - 0 1";
/// Special tokens of a vocabulary, by their names.
const SPECIAL_TOKENS: &str = "pad eos bos unk mask sep cls image";
/// Values of `auth` that say how to log in.
const LOGIN_METHODS: &str = "password basic bearer digest token oauth oauth2 ldap kerberos ntlm jwt anonymous key iam saml oidc \
    pam negotiate gssapi mtls tls cert certificate trust md5 sha1 sha224 sha256 sha384 sha512 scram native simple sso browser interactive public private";

/// The certainty with which the name of a value says that the value is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    Secret,
    /// Only if the value has letters and digits.
    IfMixed,
    /// Only if the value looks random.
    IfRandom,
    No,
}

/// Whether a value with this name is a secret.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let words = words(name);
    let certainty = certainty(name, &words);
    // A value in code may be followed by a comma, and one in a path by a slash.
    let lower = value
        .trim_end_matches([',', ')', ';', '/'])
        .to_ascii_lowercase();
    let is_last = |word: &str| words.last().is_some_and(|last| last == word);
    // The usual numbers of key and token count something.
    let is_number = lower.bytes().all(|byte| byte.is_ascii_digit());
    let is_count =
        is_number && (lower.len() <= 6 && (is_last("key") || is_last("token")) || lower.len() <= 1);
    // Special tokens of a vocabulary: `<s>`, `[MASK]`, `### User:`.
    let is_special_token = is_last("token")
        && (is_in(SPECIAL_TOKENS, &lower)
            || value.starts_with(['<', '[']) && value.ends_with(['>', ']'])
            || value.starts_with("###"));
    let is_login_method = is_last("auth") && is_in(LOGIN_METHODS, &lower);
    certainty != Certainty::No
        && !value.is_empty()
        && !lower.is_empty()
        && !is_in(HARMLESS_VALUES, &lower)
        && !is_count
        && !is_special_token
        && !is_login_method
        // Code: `login(token=token)`.
        && !(["key", "token"].contains(&value) && is_last(value))
        && !(value != lower && value.ends_with([',', ')']) && is_last(&lower))
        && !is_reference(value)
        && !is_path(value)
        && !is_pattern(value)
        && match certainty {
            Certainty::Secret => true,
            Certainty::IfMixed => is_mixed(value) || is_random(value),
            Certainty::IfRandom => is_random(value),
            Certainty::No => false,
        }
        || is_joined_auth(&words, value)
}

/// Whether this is a login after a name such as `proxyauth`: `me:password`.
fn is_joined_auth(words: &[String], value: &str) -> bool {
    let is_login = |(user, password): (&str, &str)| !user.is_empty() && !password.starts_with("//");
    words
        .last()
        .is_some_and(|last| last.len() > "auth".len() && last.ends_with("auth") && last != "oauth")
        && value.split_once(':').is_some_and(is_login)
        && !is_reference(value)
}

/// Whether a value is a regular expression, as in `sed s/password=.*//`.
fn is_pattern(value: &str) -> bool {
    let is_class = value
        .strip_prefix(['(', '\\'])
        .is_some_and(|rest| rest.starts_with(['\\', '.', '?', '[']));
    let is_escape = value
        .strip_prefix('\\')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    let is_set = value.starts_with('[') && ["]+", "]*", "]{"].iter().any(|end| value.contains(end));
    is_class
        || is_escape
        || is_set
        || [".*", ".+", "[^"]
            .iter()
            .any(|start| value.starts_with(start))
}

/// Whether a value has letters and digits as passwords do, not as names do: `audio_1`,
/// `patience10`, `v1.2`.
pub(super) fn is_mixed(value: &str) -> bool {
    const SHORTEST: usize = 6;
    const PASSWORD_MARKS: [char; 8] = ['!', '@', '$', '%', '&', '*', '?', '#'];
    let has = |is_kind: fn(&u8) -> bool| value.bytes().filter(is_kind).count();
    // A word, and a number behind it.
    let is_name = |part: &str| {
        let stem = part.trim_end_matches(|character: char| character.is_ascii_digit());
        let rest = stem.strip_prefix('v').unwrap_or(stem);
        rest.is_empty() || stem.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    value.len() >= SHORTEST
        && has(u8::is_ascii_digit) >= 1
        && has(u8::is_ascii_alphabetic) >= 2
        && !value.contains([' ', '/', '(', ':'])
        && (!value.split(['-', '_', '.', ',']).all(is_name) || value.contains(PASSWORD_MARKS))
}

/// Whether a header with this name is one that contains a key or a token: `X-Consul-Token`.
pub(super) fn is_secret_header(name: &str) -> bool {
    let words = words(name);
    let [.., before, last] = words.as_slice() else {
        return false;
    };
    is_in("token key apikey secret password auth", last) && !is_in(HARMLESS, before)
}

/// Whether this is the name of a secret, whatever the value.
pub(super) fn names_secret(name: &str) -> bool {
    certainty(name, &words(name)) == Certainty::Secret
}

fn certainty(name: &str, words: &[String]) -> Certainty {
    let is_variable = !name.bytes().any(|byte| byte.is_ascii_lowercase());
    let mut stem = words;
    while let [before @ .., last] = stem
        && is_in(NEUTRAL_ENDS, last)
        && !before.is_empty()
    {
        stem = before;
    }
    let Some((last, before)) = stem.split_last() else {
        return Certainty::No;
    };
    let before = before.last().map(String::as_str);
    // The working directory, which shells export.
    if ["PWD", "OLDPWD"].contains(&name) {
        return Certainty::No;
    }
    let by_last = match last.as_str() {
        "pass" if before.is_some_and(|word| is_in(ROUNDS, word)) => Certainty::No,
        "key" | "keys" => match qualified(before, KEYS, last == "keys", Certainty::IfRandom) {
            Certainty::IfRandom if is_variable && before.is_some() => Certainty::IfMixed,
            certainty => certainty,
        },
        "token" => match qualified(before, TOKENS, false, Certainty::Secret) {
            Certainty::IfRandom => Certainty::IfMixed,
            certainty => certainty,
        },
        "tokens" => qualified(before, "api auth access", true, Certainty::No),
        "secrets" | "oauth" | "pat" | "pin" | "signature" => match before {
            Some(_) if is_variable => Certainty::Secret,
            _ => Certainty::IfRandom,
        },
        // The access key and the secret key of some clouds: `--ak`, `--sk`.
        "sk" => Certainty::IfMixed,
        "params" | "parameters" if before == Some("auth") => Certainty::Secret,
        "passwords" | "auth" | "pw" => Certainty::Secret,
        // Names of secrets of Kubernetes.
        "secret" if before.is_some_and(|word| is_in("existing pull tls", word)) => {
            Certainty::IfRandom
        }
        "code" if before.is_some_and(|word| is_in("auth token verification mfa otp", word)) => {
            Certainty::Secret
        }
        last if is_in(SECRETS, last) => Certainty::Secret,
        last if is_in(HARMLESS_PASSES, last) => Certainty::No,
        last if SECRET_ENDINGS.iter().any(|ending| last.ends_with(ending)) => Certainty::Secret,
        last => {
            let is_joined = |ending, first| {
                last.strip_suffix(ending)
                    .is_some_and(|word| is_in(first, word))
            };
            if is_joined("key", KEYS) || is_joined("token", TOKENS) {
                Certainty::Secret
            } else {
                Certainty::No
            }
        }
    };
    let is_strong = |word: &String| is_in("password passwd passphrase secret", word);
    // `fs.azure.account.key.NAME.blob.core.windows.net`.
    let has_account_key = stem
        .windows(2)
        .any(|pair| pair[0] == "account" && pair[1] == "key");
    if by_last == Certainty::No
        && !is_in(DESCRIPTIONS, last)
        && (stem.iter().any(is_strong) || has_account_key)
    {
        // `DB_PASSWORD_PROD`.
        return if is_variable || has_account_key {
            Certainty::Secret
        } else {
            Certainty::IfRandom
        };
    }
    by_last
}

/// Judges `key` or `token` by the word before it. `bare` is the certainty without one.
fn qualified(before: Option<&str>, secret: &str, is_plural: bool, bare: Certainty) -> Certainty {
    match before {
        None if is_plural => Certainty::No,
        None => bare,
        Some(word) if is_in(secret, word) => Certainty::Secret,
        Some(word) if is_plural || is_in(HARMLESS, word) => Certainty::No,
        Some(_) => Certainty::IfRandom,
    }
}

/// Splits a name into words in lower case: `--hf-token`, `HF_TOKEN`, `hfToken` and `HFToken` are
/// `hf`, `token`. Numbers at the end are left out.
fn words(name: &str) -> Vec<String> {
    // A definition, as in `cmake -DAPI_KEY=…`.
    let name = name
        .strip_prefix("-D")
        .filter(|name| !name.is_empty())
        .unwrap_or(name);
    let mut words = vec![String::new()];
    let mut characters = name.chars().peekable();
    let mut before = ' ';
    while let Some(character) = characters.next() {
        let is_upper = character.is_ascii_uppercase();
        let next_is_lower = characters.peek().is_some_and(char::is_ascii_lowercase);
        let begins = is_upper
            && (before.is_ascii_lowercase() || before.is_ascii_uppercase() && next_is_lower);
        if !character.is_ascii_alphanumeric() || begins {
            words.push(String::new());
        }
        if character.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(character.to_ascii_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words.pop_if(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(last) = words
        .last_mut()
        .filter(|last| !last.starts_with("base") && !last.ends_with("64"))
    {
        last.truncate(
            last.trim_end_matches(|digit: char| digit.is_ascii_digit())
                .len(),
        );
    }
    words
}

/// Whether this option takes no value.
pub(super) fn is_switch(option: &str) -> bool {
    words(option)
        .first()
        .is_some_and(|word| is_in(SWITCHES, word))
}

/// Whether an option takes text for people or models, in which names mean nothing.
pub(super) fn takes_prose(option: &str) -> bool {
    const PROSE: &str = "prompt prompts message title body description text query question system caption notes note comment \
        reason subject summary instruction instructions m";
    option.starts_with('-') && words(option).last().is_some_and(|word| is_in(PROSE, word))
}

/// Whether an option takes an assignment, as in `-e NAME=VALUE`.
pub(super) fn takes_assignment(option: &str) -> bool {
    [
        "-e",
        "--env",
        "--build-arg",
        "-var",
        "--set",
        "--set-string",
        "--export",
        "-o",
    ]
    .contains(&option)
}

/// Whether an option takes a command that writes a password, as in `--password-command 'echo …'`.
pub(super) fn takes_password_command(option: &str) -> bool {
    let words = words(option);
    let is_password = |word: &String| {
        SECRET_ENDINGS
            .iter()
            .any(|ending| word.starts_with(ending) || word.ends_with(ending))
    };
    let is_command = |word: &String| {
        is_in("command cmd eval program", word)
            || word.ends_with("eval")
            || word.ends_with("extpass")
    };
    words.iter().any(is_password) && words.iter().any(is_command)
}

/// Whether a word says that the program reads a secret from its standard input, as in
/// `--passwd-on-stdin`.
pub(super) fn takes_password_from_stdin(word: &str) -> bool {
    const LONGEST: usize = 40;
    word.len() <= LONGEST && word.contains("stdin") && {
        let words = words(word);
        words.last().is_some_and(|last| last == "stdin")
            && words
                .iter()
                .any(|word| is_in("password passwd passphrase pass pw token secret key", word))
    }
}

/// Whether this value is no secret, whatever its name.
pub(super) fn is_harmless_value(value: &str) -> bool {
    is_in(HARMLESS_VALUES, &value.to_ascii_lowercase())
}

/// Whether a value is read from elsewhere: `$HF_TOKEN`, `$(cat FILE)`, `os.environ["HF_TOKEN"]`.
pub(super) fn is_reference(value: &str) -> bool {
    const CODE: [&str; 12] = [
        "os.environ",
        "os.getenv(",
        "getpass",
        "args.",
        "self.",
        "process.env.",
        "config.",
        "cfg.",
        "opt.",
        "env:",
        "file:",
        "arn:",
    ];
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let variable = value
        .strip_prefix('$')
        .map(|name| name.strip_prefix('{').unwrap_or(name));
    variable.is_some_and(|name| {
        is_name(name.split('}').next().unwrap_or(name)) && !name.trim_end_matches('}').contains('}')
    }) || value.starts_with("$(")
        || value.starts_with('`')
        || value.starts_with("${") && value.ends_with('}')
        || value.starts_with("{{") && value.ends_with("}}")
        || ["%s", "%d", "%r", "%(", "{}"]
            .iter()
            .any(|format| value.starts_with(format))
        || CODE.iter().any(|code| value.starts_with(code))
}

/// Whether a value is the path of a file.
pub(super) fn is_path(value: &str) -> bool {
    const ROOTS: &str = "home root etc var run tmp mnt data opt usr srv dev proc Users scratch nfs lustre workspace secrets app \
        config work shared storage projects datasets keys vault";
    const ENDINGS: &str = "json pem key crt cer yaml yml toml ini txt env p12 pfx jks pub gpg asc csv npy conf cfg cnf rc db";
    let has_ending = value
        .rsplit_once('.')
        .is_some_and(|(stem, ending)| !stem.is_empty() && is_in(ENDINGS, ending));
    let root = value
        .strip_prefix('/')
        .and_then(|rest| rest.split_once('/'));
    root.is_some_and(|(root, _)| is_in(ROOTS, root))
        || value.starts_with('/') && !value.split('/').any(is_random)
        || ["~/", "./", "../", "@/"]
            .iter()
            .any(|start| value.starts_with(start))
        || has_ending
}

/// Whether a value looks like one that a generator made: long, or with letters and digits in turn.
pub(super) fn is_random(value: &str) -> bool {
    let is_turn = |pair: &[u8]| {
        pair[0].is_ascii_digit() && pair[1].is_ascii_alphabetic()
            || pair[0].is_ascii_alphabetic() && pair[1].is_ascii_digit()
    };
    let turns = value
        .as_bytes()
        .windows(2)
        .filter(|pair| is_turn(pair))
        .count();
    let longest = value
        .split(|character: char| !character.is_ascii_alphanumeric())
        .map(str::len)
        .max();
    is_uuid(value)
        || !value.contains([' ', '/', '(', ':'])
            && (turns >= 1 && longest >= Some(16) || turns >= 3 && value.len() >= 8)
}

fn is_uuid(value: &str) -> bool {
    const PARTS: [usize; 5] = [8, 4, 4, 4, 12];
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    value.split('-').map(str::len).eq(PARTS) && value.split('-').all(is_hex)
}

pub(super) fn is_in(words: &str, word: &str) -> bool {
    words.split_ascii_whitespace().any(|known| known == word)
}
