# The formula of Homebrew on Linux.
class Gputop < Formula
  desc "See every GPU, who holds its memory, whether it leaks, and end the right process"
  homepage "@REPOSITORY@"
  url "@REPOSITORY@/releases/download/@VERSION@/gputop-@VERSION@-source.tar.gz"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cargo", "install", "--offline", *std_cargo_args
    generate_completions_from_executable(bin/"gputop", "completions", shells: [:bash, :zsh, :fish])
    system bin/"gputop", "man", "--all", man1
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/gputop --version")
    assert_match "H100", shell_output("#{bin}/gputop --demo --once")
  end
end
