# Part of guest.sh: for each attach mode, one director with every forwarding method for IPv4 and IPv6. Connections
# through all these methods continue across a reload, and while the flow table is resized.
readonly METHODS=${FORWARDS:-nat snat direct tunnel l3dsr proxy}

# shellcheck disable=SC2154
vip() { # FAMILY FORWARD
  case $2 in
    direct) last=10 ;;
    tunnel) last=11 ;;
    l3dsr) last=12 ;;
    nat) last=13 ;;
    snat) last=14 ;;
    proxy) last=15 ;;
  esac
  [ "$1" = 4 ] && echo "10.0.0.$last" || echo "fd00::$last"
}

client_of() { [ "$1" = nat ] && echo routed || echo client; }

# Runs a command for each forwarding method and address family.
for_each_method() { # COMMAND…: gets the family and the method
  local forward family
  for forward in $METHODS; do
    for family in 4 6; do "$@" "$family" "$forward" || return 1; done
  done
}

service() { # FAMILY FORWARD
  address=$(bracketed "$(vip "$1" "$2")")
  echo "[service.$2$1]"
  echo "listen = [\"$address:80\", \"$address:7\"]"
  echo "pool = \"web$1\""
  case $2 in
    snat) echo 'forward = "nat"'; echo 'snat = true' ;;
    proxy) echo 'forward = "proxy"'; echo 'protocol = "tcp"' ;;
    *) echo "forward = \"$2\"" ;;
  esac
}

config() { # ATTACH WEIGHT FLOWS
  echo '[node]'
  echo 'vip_interface = "eth0"'
  echo "attach = \"$1\""
  # A small table: the guest has little memory.
  echo "max_flows = $3"
  for family in 4 6; do
    [ "$family" = 4 ] && net=10.0.0. || net=fd00::
    echo "[pool.web$family]"
    echo 'scheduler = "rr"'
    echo "servers = [\"${net}20\", { address = \"${net}21\", weight = $2 }]"
    echo 'check = { kind = "tcp", port = 80 }'
  done
  for_each_method service
}

server_up() { # FORWARD
  case $1 in
    direct | tunnel) weir_on "$server" real-server up --forward "$1" --vip "$(vip 4 "$1")" --vip "$(vip 6 "$1")" ;;
    l3dsr)
      weir_on "$server" real-server up --forward l3dsr --vip "$(vip 4 l3dsr):1-65535" --vip "[$(vip 6 l3dsr)]:1-65535"
      ;;
    nat)
      ip -n "$server" -4 route replace 10.0.0.4/32 via 10.0.0.3
      ip -n "$server" -6 route replace fd00::4/128 via fd00::3
      ;;
  esac
}

servers_up() {
  for server in server0 server1; do
    for forward in $METHODS; do server_up "$forward" || return 1; done
  done
}

servers_down() {
  for server in server0 server1; do
    weir_on "$server" real-server down || return 1
  done
}

# Four requests reach both servers, and a large file arrives intact.
fetches() { # FAMILY FORWARD
  local client url
  client=$(client_of "$2")
  url="http://$(bracketed "$(vip "$1" "$2")")"
  both_servers fetch "$client" "$url/name" && fetch "$client" "$url/big" -o /tmp/fetched && cmp /tmp/big /tmp/fetched
}

check_fetches() { check "$2-ipv$1-$attach" fetches "$1" "$2"; }
check_open() { check "open-$2-ipv$1-$attach" talk "$(client_of "$2")" "$(vip "$1" "$2")" "$2-ipv$1"; }
check_continued() { check "$change-$2-ipv$1-$attach" within 20 grep -q after "/tmp/received-$2-ipv$1"; }

send_request() {
  fetch "$(client_of "$2")" "http://$(bracketed "$(vip "$1" "$2")")/name" >/dev/null || echo "failed $2-ipv$1"
}

# Requests through all services, one after another, until /tmp/go exists.
send_requests() {
  until [ -e /tmp/go ]; do for_each_method send_request 2>&1; echo turn; sleep 3; done
}

# Connections through all services continue across a change of the configuration, and no request fails during the
# change.
reload_keeps() { # CHANGE WEIGHT FLOWS
  change=$1
  rm -f /tmp/go /tmp/end
  for_each_method check_open
  send_requests >/tmp/requests &
  requests=$!
  config "$attach" "$2" "$3" >/etc/weir/director.toml
  check "$change-command-$attach" weir_on director reload
  within 60 grep -q turn /tmp/requests
  touch /tmp/go
  wait "$requests"
  for_each_method check_continued
  touch /tmp/end
  check "$change-requests-$attach" sh -c '! grep failed /tmp/requests'
  sleep 2
}

removed() { # no VIP, no object
  if ip -n director -o addr show dev eth0 | grep -v -E 'fe80:|(10.0.0.|fd00::)3/'; then return 1; fi
  if ls /sys/fs/bpf/weir-director; then return 1; fi
}

round() {
  config "$attach" 1 65536 >/etc/weir/director.toml
  if start director "start-$attach"; then
    for_each_method check_fetches
    reload_keeps reload 2 65536
    # Packets take the same path with `auto` and `tc`, because these are veth devices.
    [ "$attach" = tc ] || reload_keeps resize 2 131072
    stop director
  fi
  check "clean-$attach" weir_on director clean
  check "removed-$attach" removed
}

check "real-server-up" servers_up
for attach in ${ATTACHES:-auto xdp tc}; do round; done
check "real-server-down" servers_down
