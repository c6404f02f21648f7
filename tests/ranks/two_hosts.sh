#!/usr/bin/env bash
# Two "hosts" in network namespaces, one rank on each, over TCP: the text must be that of one rank.
#   two_hosts.sh RIDGE        exit 77: skipped, since this needs root, ip and mpirun
set -euo pipefail
ridge=$1
if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null || ! command -v mpirun >/dev/null; then exit 77; fi
id=ridge$$
a=$id-a b=$id-b
folder=$(mktemp -d)
end() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$folder"
}
trap end EXIT
# A container may have root and no right to make namespaces.
ip netns add "$a" 2>/dev/null && ip netns add "$b" && ip link add va$$ netns "$a" type veth peer name vb$$ netns "$b" || exit 77
ip -n "$a" addr add 10.93.0.1/24 dev va$$
ip -n "$b" addr add 10.93.0.2/24 dev vb$$
for host in "$a" "$b"; do ip -n "$host" link set lo up; done
ip -n "$a" link set va$$ up
ip -n "$b" link set vb$$ up

# In place of ssh: what mpirun would run on the other host.
printf '#!/bin/bash\nshift\nexec ip netns exec %s bash -c "$*"\n' "$b" >"$folder/agent"
chmod +x "$folder/agent"
export ASAN_OPTIONS=detect_leaks=0  # Open MPI leaks at its end
words=(run ridge-1m "The memory of a computer" -n 16 --temperature 0)
alone=$("$ridge" "${words[@]}" 2>/dev/null)
bytes() { ip netns exec "$a" cat /sys/class/net/va$$/statistics/tx_bytes; }
before=$(bytes)
ranks=$(timeout 120 ip netns exec "$a" mpirun --allow-run-as-root --mca plm_rsh_agent "$folder/agent" \
  --mca btl tcp,self --mca btl_tcp_if_include 10.93.0.0/24 --mca oob_tcp_if_include 10.93.0.0/24 \
  -x ASAN_OPTIONS -H 10.93.0.1:1,10.93.0.2:1 -n 2 "$ridge" "${words[@]}" --ranks 2 2>"$folder/errors") || {
  cat "$folder/errors" >&2
  exit 1
}
if [ "$ranks" != "$alone" ]; then
  printf 'one rank wrote:\n%s\ntwo hosts wrote:\n%s\n' "$alone" "$ranks" >&2
  exit 1
fi
sent=$(($(bytes) - before))
echo "the same text; $sent bytes went from the first host to the second"
[ "$sent" -gt 50000 ]  # the activations did travel
