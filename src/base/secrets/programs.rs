//! The options and arguments of programs that are secrets, from the manuals of the programs.
//!
//! `tests/data/secrets/programs.txt` has an example of each row.

use self::SecretPart::{
    AfterColon, AfterComma, AfterEquals, AfterPercent, AfterScheme, AfterSlash, BeforeAt, Login,
    Pass, Whole,
};

/// The part of a value that is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretPart {
    Whole,
    /// The password in `user:password`; where the password is empty, the user if it looks like a
    /// key.
    Login,
    /// The password in `user:password@host`, without a scheme as in URLs.
    BeforeAt,
    /// The text after the last colon, as in `hmac:name:secret`.
    AfterColon,
    /// The text after `scheme://`, as in a URL of `apprise`.
    AfterScheme,
    /// The password in `user%password`.
    AfterPercent,
    /// The password in `user,password`.
    AfterComma,
    /// The password in `user/password@host`.
    AfterSlash,
    /// The value in `name=value`, whatever the name.
    AfterEquals,
    /// The password in `pass:password`.
    Pass,
}

/// Secrets on the command lines of some programs.
pub(super) struct ProgramSecrets {
    /// The names of the programs.
    pub(super) programs: &'static str,
    /// The words that stand before, in this order. `-b` also stands in `-nb`.
    pub(super) after: &'static str,
    /// The options, or the place of an argument after these words, counted from 1.
    ///
    /// - `-p` also means `-pVALUE`, and `-p+` also the last letter of `-xp`.
    /// - `-p<` means `-pVALUE` only, and `-p>` means `-p VALUE` only.
    /// - `--long` also means `--long=VALUE`; `/p:` means `/p:VALUE`.
    /// - `last` is the last argument, `all` each of them, and `NAME` the argument after the name of
    ///   a secret.
    pub(super) options: &'static str,
    pub(super) part: SecretPart,
}

const fn row(
    programs: &'static str,
    after: &'static str,
    options: &'static str,
    part: SecretPart,
) -> ProgramSecrets {
    ProgramSecrets {
        programs,
        after,
        options,
        part,
    }
}

#[rustfmt::skip]
pub(super) static PROGRAMS: &[ProgramSecrets] = &[
    // Web
    row("curl", "", "-u+ --user -U+ --proxy-user", Login),
    row("curl", "", "-E --cert --proxy-cert", AfterColon),
    row("curl", "", "--oauth2-bearer --pass --proxy-pass --tlspassword --proxy-tlspassword", Whole),
    row("curl", "", "-b --cookie", AfterEquals),
    row("curl pip pip3", "", "-x --proxy --preproxy", BeforeAt),
    row("http https httpie xh xhs", "", "-a --auth", Login),
    row("http https httpie xh xhs", "bearer", "-a --auth", Whole),
    row("ab", "", "-A -P", Login),
    row("yt-dlp youtube-dl gallery-dl instaloader", "", "-p --password --video-password --ap-password", Whole),
    row("transmission-remote", "", "-n --auth", Login),
    row("htpasswd mosquitto_passwd", "-b", "last", Whole),
    row("check_http", "", "-a --authorization -b", Login),
    row("check_mysql check_pgsql check_ldap", "", "-p", Whole),
    row("airflow superset", "create", "-p --password", Whole),
    row("gotty ttyd", "", "-c --credential", Login),
    row("miniserve dufs", "", "-a --auth", Login),
    row("transmission-daemon", "", "-v --password", Whole),
    row("ngrok", "authtoken", "1", Whole),
    row("ngrok", "add-authtoken", "1", Whole),
    row("cloudflared", "service install", "1", Whole),
    row("frpc frps", "", "-t", Whole),
    // Databases
    row("mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlshow mysqlslap mysqlbinlog mysqlpump mysql_upgrade mariadb mariadb-dump \
         mariadb-admin mariadb-import mariadb-check mariadb-show mariadb-binlog mariabackup mydumper myloader percona-xtrabackup", "", "-p<", Whole),
    row("mysqladmin mariadb-admin", "password", "1", Whole),
    row("mycli mysqlsh xtrabackup", "", "-p --password", Whole),
    row("mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat mongotop mongofiles", "", "-p --password", Whole),
    row("redis-cli valkey-cli keydb-cli redis-benchmark valkey-benchmark", "", "-a --pass --askpass", Whole),
    row("redis-cli valkey-cli keydb-cli", "AUTH", "last", Whole),
    row("redis-cli valkey-cli keydb-cli", "auth", "last", Whole),
    row("redis-cli valkey-cli keydb-cli", "requirepass", "1", Whole),
    row("redis-server valkey-server keydb-server", "", "--requirepass --masterauth", Whole),
    row("sqlcmd bcp osql sqsh tsql mssql-cli isqlw", "", "-P", Whole),
    row("isql iusql", "", "3", Whole),
    row("isql iusql", "-v", "3", Whole),
    row("isql", "", "-P", Whole),
    row("hdbuserstore", "SET", "4", Whole),
    row("dgmgrl sql usql", "", "all", AfterSlash),
    row("tdload tbuild", "", "-p", Whole),
    row("pt-online-schema-change pt-archiver pt-table-checksum pt-table-sync pt-query-digest pt-kill pt-heartbeat pt-duplicate-key-checker", "", "-p --password", Whole),
    row("isql-fb gbak gfix gsec nbackup", "", "-password -pas -pass -pw", Whole),
    row("sqlplus sqlldr exp imp expdp impdp rman tkprof sqlcl", "", "all", AfterSlash),
    row("db2", "using", "1", Whole),
    row("hdbsql nzsql exaplus", "", "-p -pw", Whole),
    row("vsql", "", "-w", Whole),
    row("bteq beeline", "", "-p", Whole),
    row("cqlsh nodetool cypher-shell", "", "-p -pw --password", Whole),
    row("neo4j-admin", "set-initial-password", "1", Whole),
    row("influx influxd", "", "-password -token -t --token", Whole),
    row("couchbase-cli cbq cbbackupmgr", "", "-p --password", Whole),
    row("elasticsearch-users", "", "-p", Whole),
    row("etcdctl", "", "--user", Login),
    row("etcdctl", "user add", "1", Login),
    row("snowsql", "", "--mfa-passcode", Whole),
    row("tabcmd", "", "-p --password", Whole),
    // Passwords for other programs
    row("sshpass", "", "-p", Whole),
    row("plink pscp psftp putty kitty", "", "-pw -pwfile", Whole),
    row("ssh-keygen", "", "-N -P", Whole),
    row("openssl", "", "-password -pass -passin -passout -srppass -kdfpass", Pass),
    row("openssl", "", "-k> -K>", Whole),
    row("openssl", "dgst", "-hmac", Whole),
    row("openssl", "s_client", "-psk", Whole),
    row("openssl", "passwd", "last", Whole),
    row("mkpasswd", "", "last", Whole),
    row("slappasswd", "", "-s", Whole),
    row("caddy", "hash-password", "-p --plaintext", Whole),
    row("doveadm", "pw", "-p", Whole),
    row("keytool jarsigner", "", "-storepass -keypass -srcstorepass -deststorepass -srckeypass -destkeypass -new", Whole),
    row("useradd usermod adduser", "", "-p --password", Whole),
    row("cryptsetup veracrypt truecrypt", "", "-p --password", Whole),
    row("ccrypt ccencrypt ccdecrypt", "", "-K", Whole),
    row("mcrypt aescrypt", "", "-k -p", Whole),
    row("steghide", "", "-p --passphrase", Whole),
    row("vncdo vncdotool", "", "-p --password", Whole),
    row("x11vnc", "", "-passwd -viewpasswd", Whole),
    row("bw", "login", "2", Whole),
    row("bw", "unlock", "1", Whole),
    row("keepassxc-cli kpcli", "", "-p --pw", Whole),
    row("chamber", "write", "3", Whole),
    // Archives and documents
    row("7z 7za 7zr 7zz 7zzs p7zip", "", "-p<", Whole),
    row("unrar rar", "", "-p< -hp<", Whole),
    row("unzip funzip zip zipcloak", "", "-P+", Whole),
    row("zip bsdtar", "", "--password --passphrase", Whole),
    row("unar lsar", "", "-p -password", Whole),
    row("qpdf", "", "--password", Whole),
    row("qpdf", "--encrypt", "1 2", Whole),
    row("pdftotext pdfinfo pdftoppm pdfimages pdftocairo pdftohtml pdffonts pdfdetach pdfseparate", "", "-upw -opw", Whole),
    row("mutool mudraw", "", "-p", Whole),
    row("pdftk", "", "NAME", Whole),
    // Directories, shares and remote hosts
    row("ldapsearch ldapmodify ldapadd ldapdelete ldappasswd ldapwhoami ldapcompare ldapmodrdn ldapexop ldapurl", "", "-w+", Whole),
    row("ldappasswd", "", "-a -s", Whole),
    row("ldapvi ipa-client-install ipa-replica-install dsconf dsidm dsctl", "", "-w", Whole),
    row("ipa-server-install", "", "-a -p", Whole),
    row("pk12util", "", "-W -K", Whole),
    row("nextcloudcmd owncloudcmd megatools megadl megaput megals megaget", "", "-p --password", Whole),
    row("mega-login", "", "2", Whole),
    row("smbclient smbget rpcclient smbcacls smbcquotas smbtree smbspool net wmic winexe nmblookup", "", "-U --user", AfterPercent),
    row("smbclient smbget", "", "2", Whole),
    row("smbmap nxc netexec crackmapexec evil-winrm bloodhound-python", "", "-p --password", Whole),
    row("net", "user", "2", Whole),
    row("samba-tool", "user create", "2", Whole),
    row("kadmin kadmin.local", "", "-w -pw", Whole),
    row("addprinc ank cpw change_password", "", "-pw", Whole),
    row("nsupdate dig delv rndc", "", "-y", AfterColon),
    row("lftp open", "", "-u --user", AfterComma),
    row("ncftp ncftpget ncftpput ncftpls", "", "-p", Whole),
    row("xfreerdp xfreerdp3 wlfreerdp sdl-freerdp", "", "/p: /password: /gp: /pth:", Whole),
    row("rdesktop", "", "-p", Whole),
    row("ipmitool ipmipower", "", "-P -p>", Whole),
    row("racadm idracadm idracadm7 hponcfg redfishtool", "", "-p --password", Whole),
    row("ipmi-sensors ipmi-chassis ipmi-power ipmi-fru ipmi-sel ipmiconsole ipmi-config bmc-config bmc-info bmc-device ipmi-raw", "", "-p --password", Whole),
    row("SMCIPMITool", "", "3", Whole),
    row("hdparm", "", "--security-set-pass --security-unlock --security-erase --security-disable", Whole),
    row("sedutil-cli", "", "--initialSetup --initialsetup --setSIDPassword --PSIDrevert", Whole),
    row("snmpget snmpwalk snmpset snmpbulkwalk snmpbulkget snmptable snmptrap snmpgetnext snmpdf snmpstatus", "", "-A -X -c", Whole),
    row("nmcli wpa_cli", "", "NAME", Whole),
    row("wpa_passphrase", "", "2", Whole),
    row("iwconfig", "key", "1", Whole),
    row("create_ap", "", "4", Whole),
    row("coap-client", "", "-k", Whole),
    row("zerotier-cli", "", "-T", Whole),
    row("mp4decrypt", "", "--key", AfterColon),
    row("saslpasswd2", "", "-p", Whole),
    row("curlftpfs", "", "all", BeforeAt),
    row("hydra medusa ncrack psexec", "", "-p", Whole),
    row("radtest", "", "2", Whole),
    row("ss-local ss-server ss-redir ss-tunnel sslocal ssserver edge cryptcat", "", "-k --password", Whole),
    row("brook", "", "-p --password", Whole),
    row("iodine iodined", "", "-P", Whole),
    row("proxytunnel", "", "-P", Login),
    row("openfortivpn vpnc", "", "-p --password", Whole),
    row("esxcli vmrun govc", "", "-p -gp -vp", Whole),
    row("govc", "", "-u", Login),
    row("swaks", "", "-ap --auth-password", Whole),
    row("sendemail sendEmail", "", "-xp", Whole),
    row("irssi", "", "-w --password", Whole),
    row("p4", "", "-P", Whole),
    // Messages
    row("mosquitto_pub mosquitto_sub mosquitto_rr mosquitto_ctrl", "", "-P --pw", Whole),
    row("rabbitmqctl", "add_user", "2", Whole),
    row("rabbitmqctl", "change_password", "2", Whole),
    row("rabbitmqctl", "authenticate_user", "2", Whole),
    row("rabbitmqadmin", "", "-p --password", Whole),
    row("mqtt mqttx", "", "-pw -P --password", Whole),
    row("erl iex elixir", "", "-setcookie --cookie", Whole),
    row("zkCli.sh zookeeper-client", "addauth", "2", AfterColon),
    // Mail and messages
    row("ssmtp", "", "-ap<", Whole),
    row("mailsend mailsend-go", "", "-pass", Whole),
    row("ntfy", "", "-u --user", Login),
    row("gotify drone", "", "-t --token", Whole),
    row("apprise", "", "all", AfterScheme),
    row("pd-send dogwrap dog honeymarker", "", "-k", Whole),
    // Containers
    row("docker podman nerdctl buildah helm oras crane finch regctl", "login", "-p --password", Whole),
    row("skopeo buildah podman crictl", "", "--creds --src-creds --dest-creds", Login),
    row("ctr", "", "-u --user", Login),
    row("kubeadm", "", "--token --certificate-key", Whole),
    row("kubectl oc k3s microk8s", "create secret", "--from-literal", AfterEquals),
    row("oc", "login", "-p --password", Whole),
    row("rancher", "login", "-t --token", Whole),
    row("cf", "login", "-p", Whole),
    row("cf", "auth", "2", Whole),
    row("fly", "login", "-p --password", Whole),
    // Clouds
    row("aws", "configure set", "NAME", Whole),
    row("aws", "secretsmanager", "--secret-string --secret-binary", Whole),
    row("aws", "ssm put-parameter", "--value", Whole),
    row("aws", "sts", "--token-code", Whole),
    row("az", "login", "-p --password", Whole),
    row("az", "acr login", "-p --password", Whole),
    row("az", "keyvault secret set", "--value", Whole),
    row("gcloud", "auth activate-refresh-token", "2", Whole),
    row("swift", "", "-K --key", Whole),
    row("b2", "authorize-account", "2", Whole),
    row("b2", "account authorize", "2", Whole),
    row("qshell", "account", "2", Whole),
    row("upx", "login", "3", Whole),
    row("civo", "apikey add", "2", Whole),
    row("ibmcloud", "login", "-p --apikey", Whole),
    row("doctl", "", "-t --access-token", Whole),
    row("mc mcli", "alias set", "3 4", Whole),
    row("mc mcli", "host add", "3 4", Whole),
    row("mc mcli", "user add", "3", Whole),
    row("launch.py webui.py webui.sh", "", "--ngrok", Whole),
    row("anaconda anaconda-client", "", "-t --token", Whole),
    row("gh glab", "secret set", "-b --body", Whole),
    row("glab gh", "variable set", "2", Whole),
    row("ossutil ossutil64 obsutil", "", "-k --access-key-secret", Whole),
    row("heroku", "config:set", "all", AfterEquals),
    row("fly flyctl", "secrets set", "all", AfterEquals),
    row("flyctl vercel", "", "-t --token --access-token", Whole),
    row("netlify", "env:set", "2", Whole),
    row("consul nomad", "", "-encrypt -token", Whole),
    row("az", "cosmosdb", "--key --primary-key", Whole),
    row("vault", "login", "1", Whole),
    row("vault", "operator unseal", "1", Whole),
    row("vault", "token revoke", "1", Whole),
    row("vault", "token renew", "1", Whole),
    row("vault", "unwrap", "1", Whole),
    row("vault", "operator rekey", "1", Whole),
    row("vault", "token lookup", "1", Whole),
    row("vault", "kv put", "all", AfterEquals),
    row("vault", "write", "secret_id= password=", Whole),
    row("pulumi", "config set --secret", "2", Whole),
    row("doppler", "secrets set", "all", AfterEquals),
    row("infisical", "secrets set", "all", AfterEquals),
    row("ansible-vault", "encrypt_string", "1", Whole),
    row("knife", "", "-P --ssh-password", Whole),
    // Code and packages
    row("git", "config", "NAME", Whole),
    row("npm pnpm yarn", "config set", "NAME", Whole),
    row("npm pnpm yarn", "", "--otp", Whole),
    row("twine", "upload", "-p --password", Whole),
    row("poetry", "publish", "-p --password", Whole),
    row("poetry", "config", "NAME pypi-token.pypi pypi-token.testpypi", Whole),
    row("poetry composer", "config", "3", Whole),
    row("poetry", "config pypi-token.*", "1", Whole),
    row("uv", "publish", "-p --password -t --token", Whole),
    row("hatch", "publish", "-a --auth", Whole),
    row("gitlab-runner", "register", "-r -t --registration-token --token", Whole),
    row("snyk", "auth", "1", Whole),
    row("codecov codecovcli", "", "-t --token", Whole),
    row("cypress", "", "--key", Whole),
    row("altool", "", "-p --password", Whole),
    row("security", "", "-p -w", Whole),
    row("dscl", "-passwd", "2 3", Whole),
    row("signtool", "", "/p", Whole),
    row("schtasks", "", "/rp", Whole),
    row("expo", "login", "-p --password", Whole),
    row("cargo", "login", "1", Whole),
    row("conan", "", "-p --password", Whole),
    row("bundle bundler", "config", "last", Login),
    row("paket", "add-token", "2", Whole),
    row("gem", "", "--otp", Whole),
    row("gem", "push", "-k --key", Whole),
    row("mix", "hex.user", "--key", Whole),
    row("nuget dotnet", "", "-ApiKey -k --api-key -Password", Whole),
    row("dotnet nuget", "source", "-p --password", Whole),
    row("dotnet", "user-secrets set", "2", Whole),
    row("choco", "", "-k --api-key", Whole),
    row("vsce ovsx", "", "-p --pat", Whole),
    row("sonar-scanner mvn gradle", "", "-Dsonar.login= -Dsonar.token= -Dsonar.password=", Whole),
    row("travis", "encrypt", "all", AfterEquals),
    // Machine learning
    row("wandb", "login", "last", Whole),
    row("yolo", "login", "1", Whole),
    row("gradient paperspace", "apiKey", "1", Whole),
    row("iinit", "", "1", Whole),
    row("hf huggingface-cli", "login", "--token", Whole),
    row("kaggle", "config set", "-v --value", Whole),
    row("dvc", "remote modify", "NAME", Whole),
    row("vastai", "set api-key", "1", Whole),
    row("openai", "", "-k --api-key", Whole),
    row("llm", "keys set", "--value", Whole),
    row("rclone", "", "NAME", Whole),
    row("rclone", "obscure", "1", Whole),
    // Shells
    row("setenv launchctl set", "", "NAME", Whole),
];

/// Options that name a secret for most programs, and none for these.
pub(super) const HARMLESS: &[(&str, &str)] = &[
    (
        "psql pg_dump pg_dumpall pg_restore pg_basebackup pgbench createdb dropdb createuser vacuumdb reindexdb trino presto",
        "--password",
    ),
    (
        "docker podman buildah nerdctl gcloud kubectl pulumi sky",
        "--secret --secret= --set-secrets= --update-secrets=",
    ),
    (
        "aws",
        "--client-token --client-request-token --next-token --starting-token --continuation-token",
    ),
    (
        "ansible ansible-playbook ansible-pull ansible-console",
        "--private-key --key-file",
    ),
    ("Xorg X Xvfb Xephyr Xwayland", "-auth"),
    ("openvpn", "--auth-user-pass"),
    ("ffmpeg ffprobe x264 x265", "-pass"),
];

/// Options of programs that take text for people or models.
pub(super) const PROSE: &[(&str, &str)] = &[
    (
        "llama-cli llama-run llama-simple llama-mtmd-cli llama-completion llamafile mlx_lm.generate",
        "-p",
    ),
    ("claude codex gemini aider", "-p -m"),
    ("notify-send zenity wall", "-t -b"),
];

/// Programs that read a secret from their standard input: the program, and a word that says so, if
/// it does not always.
pub(super) const STDIN_READERS: &[(&str, &str, SecretPart)] = &[
    ("sudo", "-S", Whole),
    (
        "docker podman nerdctl buildah helm oras crane",
        "--password-stdin",
        Whole,
    ),
    ("pass gopass", "insert", Whole),
    ("docker podman nerdctl gcloud", "create", Whole),
    ("passwd", "", Whole),
    ("chpasswd", "", Login),
    ("gh glab", "--with-token", Whole),
    ("glab", "--stdin", Whole),
    ("kinit", "", Whole),
    ("cryptsetup", "", Whole),
    ("gpg gpg2", "--passphrase-fd", Whole),
    ("smbpasswd", "-s", Whole),
    ("su", "", Whole),
    ("vault", "-", Whole),
    ("openconnect", "--passwd-on-stdin", Whole),
    ("wrangler", "put", Whole),
    ("vncpasswd", "-f", Whole),
];

/// Programs that run another program, which stands somewhere among their arguments.
pub(super) const WRAPPERS: &str = "env sudo doas su timeout gtimeout nohup nice ionice time stdbuf setsid exec command builtin eval xargs \
    watch strace ltrace unbuffer script flock taskset numactl chroot unshare nsenter ssh autossh mosh sshpass docker podman nerdctl \
    kubectl oc k3s srun salloc sbatch mpirun mpiexec singularity apptainer enroot conda mamba micromamba uv uvx pipx npx poetry pipenv \
    pdm rye hatch tmux screen systemd-run runuser setpriv capsh firejail bwrap proxychains proxychains4 torsocks parallel find entr gosu \
    su-exec tini dumb-init catchsegv valgrind gdb perf nsys ncu rlwrap chronic chrt prlimit cgexec lxc incus vagrant docker-compose \
    compose dotenv aws-vault op direnv busybox fakeroot faketime systemd-inhibit caffeinate gputop trap crun runc xcrun";

/// Programs that run a script or a module, whose name is their first argument.
pub(super) const INTERPRETERS: &str = "python python2 python3 pypy pypy3 node nodejs ruby perl php sh bash dash zsh ksh fish ash bun deno";

/// Options before a word that is no program: `docker run --name mysql`.
pub(super) const BEFORE_NAMES: &str =
    "--name -u --user -h --hostname --network --namespace --container";
