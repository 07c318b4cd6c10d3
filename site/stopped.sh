#!/bin/sh
# Says in one line why the set-up stopped. What is finished has its stamp file, so the next run goes on after it.
free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1000000) }')
if [ "${free:-9}" -lt 4 ]; then
  reason="$free GB are free on this disk, and 4 GB are needed"
else
  reason="the lines above say why (no network?)"
fi
echo "Set-up stopped: $reason. Run the same command again to go on."
exit 1
