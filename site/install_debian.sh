#!/bin/sh
# Installs Debian packages where that is possible: apt-get is there, and we are root or may become it without a password.
set -eu
command -v apt-get > /dev/null || exit 1
if [ "$(id -u)" -eq 0 ]; then root=""; else sudo -n true 2> /dev/null || exit 1; root="sudo -n"; fi
echo "installing $* with apt-get"
$root apt-get update -qq
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" > /dev/null
