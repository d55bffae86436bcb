# `nix run 'git+file:.?dir=packaging'` in a clone builds and runs gputop. It needs a nixpkgs with Rust 1.95.
{
  description = "See every GPU, who holds its memory, whether it leaks, and end the right process";
  inputs.nixpkgs.url = "nixpkgs/nixos-unstable";
  outputs =
    { self, nixpkgs }:
    let
      each = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ];
      cargo = (builtins.fromTOML (builtins.readFile ../Cargo.toml)).workspace.package;
    in
    {
      packages = each (
        system:
        let
          pkgs = nixpkgs.legacyPackages.${system};
        in
        {
          default = pkgs.rustPlatform.buildRustPackage {
            pname = "gputop";
            version = cargo.version;
            src = ./..;
            cargoLock.lockFile = ../Cargo.lock;
            # The tests start processes and watch /proc, which the sandbox of Nix hides in part.
            doCheck = false;
            nativeBuildInputs = [ pkgs.installShellFiles ];
            postInstall = ''
              $out/bin/gputop man --all man1
              installManPage man1/*
              installShellCompletion --cmd gputop \
                --bash <($out/bin/gputop completions bash) \
                --zsh <($out/bin/gputop completions zsh) \
                --fish <($out/bin/gputop completions fish)
            '';
            meta = {
              homepage = cargo.homepage;
              license = with pkgs.lib.licenses; [ mit asl20 ];
              mainProgram = "gputop";
              platforms = pkgs.lib.platforms.linux;
            };
          };
        }
      );
    };
}
