#!/bin/sh
# Installs gputop for one user, without root: the program, manual pages and completions, below ~/.local or below the
# folder in PREFIX. Checks the SHA-256 of what it downloads.
#
#     sh install.sh
#     PREFIX=/opt/gputop sh install.sh
#
# `.ci/release` fills in the address of the project, from Cargo.toml, and the version.
set -eu

repository='@REPOSITORY@'
version='@VERSION@'
prefix=${PREFIX:-$HOME/.local}

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

case $repository in
    @* | *.invalid | *.invalid/*)
        fail "gputop has no address to download from yet: build it from a clone with 'cargo install --path .'" ;;
    https://*) ;;
    *) fail "the address $repository does not begin with https://" ;;
esac
[ "$(uname -s)" = Linux ] || fail "gputop runs on Linux only, and this is $(uname -s)"
case $(uname -m) in
    x86_64 | aarch64) target=$(uname -m)-unknown-linux-gnu ;;
    *) fail "there is no program for $(uname -m): build it from a clone with 'cargo install --path .'" ;;
esac
for tool in tar gzip sha256sum; do
    command -v "$tool" > /dev/null || fail "$tool is needed"
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
download() {
    if command -v curl > /dev/null; then
        curl --proto '=https' --tlsv1.2 --fail --silent --show-error --location --output "$folder/$1" "$2"
    elif command -v wget > /dev/null; then
        wget --https-only --quiet --output-document="$folder/$1" "$2"
    else
        fail "curl or wget is needed"
    fi || fail "cannot download $2"
}
name=gputop-$version-$target
download "$name.tar.gz" "$repository/releases/download/$version/$name.tar.gz"
download SHA256SUMS "$repository/releases/download/$version/SHA256SUMS"
expected=$(awk -v file="$name.tar.gz" '$2 == file { print $1 }' "$folder/SHA256SUMS")
[ -n "$expected" ] || fail "SHA256SUMS of version $version does not name $name.tar.gz"
found=$(sha256sum < "$folder/$name.tar.gz" | cut -d ' ' -f 1)
[ "$found" = "$expected" ] ||
    fail "nothing was installed: the SHA-256 of $name.tar.gz is $found, and SHA256SUMS says $expected"
tar -xzf "$folder/$name.tar.gz" -C "$folder"
"$folder/$name/bin/gputop" --version > /dev/null || fail "nothing was installed: the program does not run on this machine"

mkdir -p "$prefix/bin" "$prefix/share/systemd/user" || fail "cannot write to $prefix: choose another folder with PREFIX"
# Where systemd looks for the units of a user.
mv "$folder/$name/lib/systemd/user/gputop-record.service" "$prefix/share/systemd/user/"
cp -R "$folder/$name/share/." "$prefix/share/"
# A gputop that runs keeps its own file.
cp "$folder/$name/bin/gputop" "$prefix/bin/gputop.new"
mv "$prefix/bin/gputop.new" "$prefix/bin/gputop"

echo "gputop $version is in $prefix/bin/gputop"
case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) echo "$prefix/bin is not in PATH: add it with  export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
echo "To remove it:"
echo "    cd '$prefix' && rm -r bin/gputop share/doc/gputop share/man/man1/gputop*.1.gz share/zsh/site-functions/_gputop \\"
echo "        share/bash-completion/completions/gputop share/fish/vendor_completions.d/gputop.fish \\"
echo "        share/systemd/user/gputop-record.service"
