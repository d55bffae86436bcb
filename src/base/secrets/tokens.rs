//! Finds tokens whose shape shows that they are secrets, whatever stands before them.

use std::ops::Range;
use std::sync::LazyLock;

/// The tokens of an issuer.
pub(super) struct Issuer {
    pub(super) name: &'static str,
    /// The beginnings of its tokens.
    prefixes: &'static str,
    /// The least number of characters after that.
    least: usize,
    /// The characters besides letters and digits that may follow.
    others: &'static str,
}

const fn issuer(
    name: &'static str,
    prefixes: &'static str,
    least: usize,
    others: &'static str,
) -> Issuer {
    Issuer {
        name,
        prefixes,
        least,
        others,
    }
}

/// The issuers, with an example of each in `tests/data/secrets/issuers.txt`.
pub(super) const ISSUERS: &[Issuer] = &[
    issuer("Hugging Face", "hf_ api_org_", 20, ""),
    issuer("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", 20, ""),
    issuer("GitHub, fine-grained", "github_pat_", 20, "_"),
    issuer(
        "GitLab",
        "glpat- gldt- glrt- glft- glptt- glsoat- glcbt- glagent- glimt- gloas-",
        16,
        "_-.",
    ),
    issuer(
        "OpenAI",
        "sk-proj- sk-svcacct- sk-admin- sk-None- sess-",
        20,
        "_-",
    ),
    issuer("Anthropic", "sk-ant-", 20, "_-"),
    issuer("OpenAI and others", "sk-", 20, "_-"),
    issuer("Groq", "gsk_", 20, ""),
    issuer("xAI", "xai-", 20, ""),
    issuer("Replicate", "r8_", 20, ""),
    issuer("NVIDIA", "nvapi-", 20, "_-"),
    issuer("Perplexity", "pplx-", 20, ""),
    issuer("Fireworks", "fw_", 20, ""),
    issuer("Together", "tgp_v1_", 20, "_-"),
    issuer("Jina", "jina_", 20, "_-"),
    issuer("Tavily", "tvly-", 16, "_-"),
    issuer("Pinecone", "pcsk_", 20, "_"),
    issuer("LangSmith", "lsv2_pt_ lsv2_sk_ ls__", 20, "_"),
    issuer("Langfuse", "sk-lf- pk-lf-", 20, "-"),
    issuer("Weights & Biases", "wandb_v1_", 20, "_-"),
    issuer("Databricks", "dapi", 32, "-"),
    issuer("AWS", "AKIA ASIA AROA AIDA ABIA ACCA", 16, ""),
    issuer("Google", "AIza", 30, "_-"),
    issuer("Google OAuth", "ya29. GOCSPX- 1//0", 20, "_-."),
    issuer("Azure DevOps", "azd_", 20, ""),
    issuer(
        "Stripe",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        16,
        "/+=",
    ),
    issuer("Clerk and ElevenLabs", "sk_", 24, ""),
    issuer("Square", "sq0atp- sq0csp- EAAAE", 20, "_-"),
    issuer("Shopify", "shpat_ shpss_ shpca_ shppa_", 20, ""),
    issuer(
        "Slack",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxc- xoxd- xoxe- xoxe. xapp-",
        10,
        "-.%",
    ),
    issuer("SendGrid", "SG.", 30, "_-."),
    issuer("Mailgun", "key-", 32, ""),
    issuer("Mailchimp", "md-", 20, "_-"),
    issuer("npm", "npm_", 20, ""),
    issuer("PyPI", "pypi-", 20, "_-"),
    issuer("RubyGems", "rubygems_", 20, ""),
    issuer("Docker Hub", "dckr_pat_ dckr_oat_", 20, "_-"),
    issuer("Docker Swarm", "SWMTKN-1-", 20, "-"),
    issuer("HashiCorp Vault", "hvs. hvb. hvr.", 12, "_-."),
    issuer("Terraform Cloud", "atlasv1. .atlasv1.", 20, "_-"),
    issuer(
        "Doppler",
        "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.",
        16,
        "_-.",
    ),
    issuer("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", 20, ""),
    issuer("Supabase", "sbp_ sb_secret_", 20, "_-"),
    issuer(
        "PlanetScale",
        "pscale_tkn_ pscale_pw_ pscale_oauth_",
        16,
        "_-.=",
    ),
    issuer("Fly.io", "fo1_ fm1a_ fm1r_ fm2_", 16, "_-/+="),
    issuer("Heroku", "HRKU-", 20, "_-"),
    issuer("Netlify", "nfp_ nfc_ nfu_ nfo_", 20, ""),
    issuer("Vercel", "vcp_ vci_ vca_ vcr_ vck_", 20, ""),
    issuer("Cloudflare", "cfut_ cfat_ v1.0-", 20, "_-"),
    issuer("Render", "rnd_", 20, ""),
    issuer("Pulumi", "pul-", 20, ""),
    issuer("Prefect", "pnu_ pnb_", 20, ""),
    issuer("Grafana", "glsa_ glc_", 20, "_-="),
    issuer("New Relic", "NRAK- NRII- NRJS- NRRA-", 15, "_-"),
    issuer("Datadog", "ddapp_ ddpat_", 20, "_-"),
    issuer("Sentry", "sntrys_ sntryu_", 20, "_-=/+"),
    issuer("Postman", "PMAK-", 20, "-"),
    issuer("Linear", "lin_api_ lin_oauth_", 20, ""),
    issuer("Notion", "ntn_ secret_", 32, ""),
    issuer("Airtable", "pat", 64, "."),
    issuer("Figma", "figd_ figu_", 20, "_-"),
    issuer("Atlassian", "ATATT3 ATCTT3 ATBB", 20, "_-="),
    issuer("Dropbox", "sl.", 60, "_-"),
    issuer("Facebook", "EAAB EAAC EAAG EAAM EAAD", 40, ""),
    issuer("Mapbox", "sk.eyJ tk.eyJ", 20, "_-."),
    issuer("Tailscale", "tskey-", 12, "-"),
    issuer("1Password", "ops_ey", 40, "_-="),
    issuer("age", "AGE-SECRET-KEY-1", 40, ""),
    issuer("JFrog", "AKCp cmVmdGtu", 40, ""),
    issuer("SonarQube", "sqp_ sqa_ squ_", 20, ""),
    issuer("Snyk", "snyk_uat.", 20, "_-."),
    issuer("NuGet", "oy2", 43, ""),
    issuer("Kaggle", "KGAT_", 16, ""),
    issuer("Contentful", "CFPAT-", 20, "_-"),
    issuer("Typeform", "tfp_", 20, "_-"),
    issuer("HubSpot", "pat-na1- pat-eu1-", 20, "-"),
    issuer("Yandex Cloud", "t1.9 y0_ y1_ AQVN", 30, "_-."),
    issuer("crates.io", "cio", 32, ""),
    issuer("RunPod", "rpa_", 20, ""),
    issuer("Cerebras", "csk-", 20, ""),
    issuer("Brevo", "xkeysib-", 20, "-"),
    issuer("Sourcegraph", "sgp_", 20, "_"),
    issuer("CircleCI", "CCIPAT_", 20, "_"),
    issuer("PostHog", "phx_", 20, ""),
    issuer("dbt", "dbtc_ dbtu_", 20, "_-="),
    issuer("Neon", "napi_", 20, ""),
    issuer("Buildkite", "bkua_", 20, ""),
    issuer("Alibaba Cloud", "LTAI", 16, ""),
    issuer("Akamai", "akab-", 16, "-"),
    issuer("EasyPost", "EZAK EZTK", 30, ""),
    issuer("Anyscale", "esecret_", 20, ""),
    issuer("Trello", "ATTA", 40, ""),
    issuer("a JSON Web Token", "eyJ", 16, "_-."),
];

/// The issuers whose tokens begin with each ASCII character, with the prefix.
static BY_FIRST: LazyLock<Vec<Vec<(&str, &Issuer)>>> = LazyLock::new(|| {
    let mut table = vec![Vec::new(); 128];
    for issuer in ISSUERS {
        for prefix in issuer.prefixes.split(' ') {
            table[usize::from(prefix.as_bytes()[0])].push((prefix, issuer));
        }
    }
    // `sk-ant-` before `sk-`.
    for prefixes in &mut table {
        prefixes.sort_by_key(|(prefix, _): &(&str, &Issuer)| std::cmp::Reverse(prefix.len()));
    }
    table
});

/// The words before a token in a header.
const SCHEMES: [&str; 3] = ["bearer ", "basic ", "apikey "];
/// The least number of characters of a token after such a word.
const LEAST_AFTER_SCHEME: usize = 16;

/// Calls `found` with each token and its issuer.
pub(super) fn find(text: &str, mut found: impl FnMut(Range<usize>, &'static str)) {
    /// No token is shorter.
    const SHORTEST: usize = 14;
    if text.len() < SHORTEST {
        return;
    }
    private_key(text, &mut found);
    let bytes = text.as_bytes();
    let mut before = b' ';
    let mut offset = 0;
    while offset < bytes.len() {
        let byte = bytes[offset];
        let is_begin = !before.is_ascii_alphanumeric() && before != b'_' && byte.is_ascii();
        let end = if is_begin {
            token(&text[offset..]).map(|(length, issuer)| (offset + length, issuer))
        } else {
            None
        };
        if let Some((end, issuer)) = end {
            found(offset..end, issuer);
            offset = end;
        } else if let Some(scheme) = if is_begin {
            scheme(&text[offset..])
        } else {
            None
        } {
            let begin = offset + scheme;
            let end = begin + length_of(&text[begin..], "._-+/=~");
            if end - begin >= LEAST_AFTER_SCHEME && is_mixed(&text[begin..end]) {
                found(begin..end, "a header");
            }
            offset = end;
        } else {
            offset += 1;
        }
        before = bytes[offset - 1];
    }
}

/// Returns the length and the issuer of the token that the text begins with.
fn token(text: &str) -> Option<(usize, &'static str)> {
    /// A token of words and `-` may be a name. Its parts with digits or capital letters are
    /// shorter.
    const LEAST_RANDOM_PART: usize = 8;
    /// The tokens of issuers with shorter ones have short parts, too.
    const LEAST_WITH_WORDS: usize = 16;
    let first = *text.as_bytes().first()?;
    for (prefix, issuer) in &BY_FIRST[usize::from(first)] {
        let Some(body) = text.strip_prefix(prefix) else {
            continue;
        };
        let length = length_of(body, issuer.others);
        let body = &body[..length];
        // A name of words, as in `sk-learn-version-2024`.
        let is_word = |part: &str| {
            part.len() < LEAST_RANDOM_PART || !is_mixed(part) || is_numbered_word(part)
        };
        let is_name = issuer.least >= LEAST_WITH_WORDS
            && issuer.others.contains(['-', '_'])
            && body
                .split(|character| issuer.others.contains(character))
                .all(is_word);
        if length >= issuer.least && is_mixed(&text[..prefix.len() + length]) && !is_name {
            let length = prefix.len() + length;
            return Some((
                length + length_of_second_half(&text[length..], issuer),
                issuer.name,
            ));
        }
    }
    match first {
        b'0'..=b'9' => telegram(text),
        b'M' | b'N' | b'O' => discord(text),
        _ => None,
    }
}

/// Returns the length of `:SECRET` after the identifier of an access key of AWS.
fn length_of_second_half(rest: &str, issuer: &Issuer) -> usize {
    const LEAST: usize = 16;
    let secret = rest
        .strip_prefix([':', ',', '/'])
        .filter(|_| issuer.name == "AWS")
        .unwrap_or_default();
    let length = length_of(secret, "/+=");
    if length >= LEAST { 1 + length } else { 0 }
}

/// Whether this is a word of small letters with a short number behind it: `resnet50`.
fn is_numbered_word(part: &str) -> bool {
    const LONGEST_NUMBER: usize = 4;
    let word = part.trim_end_matches(|character: char| character.is_ascii_digit());
    part.len() - word.len() <= LONGEST_NUMBER && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// `123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw`.
fn telegram(text: &str) -> Option<(usize, &'static str)> {
    const LENGTH: usize = 33;
    let (number, rest) = text.split_once(':')?;
    let is_number =
        (6..=12).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let length = length_of(rest, "_-");
    (is_number && rest.starts_with("AA") && length >= LENGTH)
        .then_some((number.len() + 1 + length, "Telegram"))
}

/// `MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs`.
fn discord(text: &str) -> Option<(usize, &'static str)> {
    let length = length_of(text, "_-.");
    let mut parts = text[..length].split('.').map(str::len);
    let is_shape = matches!(parts.next(), Some(23..=30)) && matches!(parts.next(), Some(6 | 7));
    (is_shape && matches!(parts.next(), Some(27..=40)) && parts.next().is_none())
        .then_some((length, "Discord"))
}

/// Finds `-----BEGIN RSA PRIVATE KEY-----`, to its end line or the end of the text.
fn private_key(text: &str, found: &mut impl FnMut(Range<usize>, &'static str)) {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = " PRIVATE KEY-----";
    let mut from = 0;
    while let Some(begin) = text[from..].find(BEGIN).map(|offset| from + offset) {
        from = begin + BEGIN.len();
        let Some(title) = text[from..]
            .find("-----")
            .filter(|end| text[..from + end + 5].ends_with(END))
        else {
            continue;
        };
        from += title;
        let end = text[from + 5..]
            .find(END)
            .map_or(text.len(), |offset| from + 5 + offset + END.len());
        found(begin..end, "a private key");
        from = end;
    }
}

fn scheme(text: &str) -> Option<usize> {
    let first = text.as_bytes()[0].to_ascii_lowercase();
    let is_here = |scheme: &&&str| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    SCHEMES
        .iter()
        .filter(|scheme| scheme.as_bytes()[0] == first)
        .find(is_here)
        .map(|scheme| scheme.len())
}

/// Returns the length of the letters, digits and these other characters that the text begins with.
fn length_of(text: &str, others: &str) -> usize {
    text.find(|character: char| !character.is_ascii_alphanumeric() && !others.contains(character))
        .unwrap_or(text.len())
}

/// Whether a text has a digit or a capital letter.
fn is_mixed(text: &str) -> bool {
    text.bytes()
        .any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}
