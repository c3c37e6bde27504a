# ---- how it runs ----
# A step ends when one of the models finishes, whichever it is; the next begins once all replicas of this one were up.
# Models that no later step runs keep their GPUs until they finish; a replica that finds its GPUs taken runs on others
# of one island, or waits. Clients say what is finished, see docs/offline-running.md of sutler.
set -euo pipefail
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  echo "error: bash $BASH_VERSION is too old: run it with bash 4.4 or newer" >&2
  exit 2
fi

POLL_S=1
GRACE_S=60
GONE_S=10 # chosen: a killed process frees its GPU within seconds
START_UP_LIMIT_S=''
ADDRESS=''
RESUMES=''
RUN=''

usage() {
  cat <<USAGE
Usage: bash $0 [OPTIONS] RUN_FOLDER

Starts and stops the servers of the plan, step after step, until all models are finished.
RUN_FOLDER: an empty or new folder (shared by all hosts, where there are several). Clients read endpoints there and
report in done/ and progress/.

  --resume              go on with a folder where an earlier run ended before all was done
  --poll SECONDS        how often to look for reports and at servers (default $POLL_S)
  --grace SECONDS       how long a server may take to stop before it is killed (default $GRACE_S)
  --start-up-limit SECONDS  how long a server may take to start (default: by the plan)
  --address HOST        how clients reach this host (default: 127.0.0.1, or the host's name where there are several)
USAGE
}

main() {
  read_options "$@"
  check_host
  prepare_folder
  trap clean_up EXIT
  trap 'say "interrupted"; exit 130' INT
  trap 'say "asked to end"; exit 143' TERM
  trap 'exit 129' HUP
  say "clients find servers in $RUN/$ENDPOINTS and report finished models in $RUN/done"
  write_endpoints
  local step
  for ((step = 0; step < STEPS; step++)); do
    run_step "$step"
  done
  run_what_is_left
  say "all models are finished"
}

# ---- options, folder, messages ----

read_options() {
  while (($#)); do
    case $1 in
      --help | -h) usage; exit 0 ;;
      --resume) RESUMES=1 ;;
      --poll | --grace | --start-up-limit | --address)
        (($# > 1)) || refuse "$1 needs a value"
        case $1 in
          --poll) POLL_S=$2 ;;
          --grace) GRACE_S=$2 ;;
          --start-up-limit) START_UP_LIMIT_S=$2 ;;
          --address) ADDRESS=$2 ;;
        esac
        shift
        ;;
      -*) refuse "unknown option $1" ;;
      *)
        [[ -z $RUN ]] || refuse "one RUN_FOLDER is enough, and there are $RUN and $1"
        RUN=$1
        ;;
    esac
    shift
  done
  [[ -n $RUN ]] || refuse "name a RUN_FOLDER"
  [[ $RUN == /* ]] || RUN=$PWD/$RUN
  [[ $POLL_S =~ ^[0-9]*\.?[0-9]+$ ]] || refuse "--poll $POLL_S: must be a number of seconds"
  [[ $GRACE_S =~ ^[0-9]+$ ]] || refuse "--grace $GRACE_S: must be a whole number of seconds"
  [[ $START_UP_LIMIT_S =~ ^[0-9]*$ ]] || refuse "--start-up-limit $START_UP_LIMIT_S: must be a whole number of seconds"
  [[ $ADDRESS =~ ^[A-Za-z0-9.:_-]*$|^\[[0-9A-Fa-f:]+\]$ ]] || refuse "--address $ADDRESS: must be a name or an IP address"
  if [[ -z $ADDRESS ]]; then
    ADDRESS=127.0.0.1
    if ((${#HOSTS[@]} > 1)); then ADDRESS=$(uname -n); fi
  fi
  ENDPOINTS=endpoints.json
  if ((${#HOSTS[@]} > 1)); then ENDPOINTS=endpoints-$HOST.json; fi
}

refuse() {
  echo "error: $1 (--help lists what there is)" >&2
  exit 2
}

say() { printf '%(%H:%M:%S)T %s\n' -1 "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

check_host() {
  local needed
  for needed in setsid vllm; do
    if ! command -v "$needed" >/dev/null; then
      die "there is no $needed on PATH: install it, or activate the environment where it is"
    fi
  done
}

prepare_folder() {
  mkdir -p -- "$RUN" || die "$RUN cannot be made: name another folder"
  local found=("$RUN"/*)
  if [[ -e $RUN/plan ]]; then
    [[ $(<"$RUN/plan") == "$PLAN" ]] || die "$RUN belongs to plan $(<"$RUN/plan"), this is $PLAN: name an empty folder"
  elif [[ -e ${found[0]} ]]; then
    die "$RUN is not empty: name an empty folder"
  fi
  if [[ -e $RUN/hosts/$HOST && -z $RESUMES ]]; then
    die "$RUN is not empty: name an empty folder, or add --resume to go on with the run that it is of"
  fi
  printf '%s\n' "$PLAN" | put plan
  mkdir -p -- "$RUN"/{done,progress,idle,logs,steps,hosts}
  : >"$RUN/hosts/$HOST"
  local model separator=''
  {
    for model in "${MODELS[@]}"; do
      printf '%s  %s: {"file": "%s", "requests": %s}' "${separator:-$'{\n'}" "${JSON_NAME[$model]}" "$model" \
        "${REQUESTS[$model]}"
      separator=$',\n'
    done
    printf '\n}\n'
  } | put models.json
}

# Standard input as a file of the run folder: whole or not at all.
put() {
  cat >"$RUN/.host-$HOST.part"
  mv -f -- "$RUN/.host-$HOST.part" "$RUN/$1"
}

clean_up() {
  local status=$?
  set +e
  trap - EXIT
  trap '' INT TERM HUP
  if ((${#PID[@]})); then
    say "stopping all servers"
    stop "${!PID[@]}"
  fi
  if ((status)); then say "to go on from here, run it again with --resume"; fi
  exit "$status"
}

# ---- steps ----

run_step() {
  local step=$1
  if [[ -e $RUN/steps/$step/ended ]]; then return; fi
  mkdir -p -- "$RUN/steps/$step"
  rm -f -- "$RUN/steps/$step/host-$HOST"
  look
  say "step $((step + 1)) of $STEPS: ${SENTENCE[$step]}"
  settle "$step"
  say "all replicas of step $((step + 1)) are up"
  until has_ended "$step"; do tick; done
}

# Models that should have finished in a step that is over, such as after --resume.
run_what_is_left() {
  look
  while list_wanted "$STEPS" && ((${#WANTED[@]})); do
    settle "$STEPS"
    tick
  done
}

# Returns when every replica of the step is up or its model finished. What is finished as soon as all have GPUs does
# not end the step: only what finishes after that does.
settle() {
  local step=$1 placed='' announced='' earlier=()
  while :; do
    list_wanted "$step"
    place "$step"
    if ((${#WAITING[@]} == 0)) && [[ -z $placed ]]; then
      earlier=("${!FINISHED[@]}")
      placed=1
    elif ((${#WAITING[@]})) && [[ $announced != "${WAITING[*]}" ]]; then
      announced=${WAITING[*]}
      say "no GPUs are free yet for: $announced"
    fi
    if ((${#WAITING[@]} == 0)) && all_up; then break; fi
    tick
  done
  mkdir -p -- "$RUN/steps/$step"
  printf '%s\n' "${earlier[@]}" | put "steps/$step/host-$HOST"
}

# WANTED: replicas that are to run here in a step, with PLANNED GPUs. LATE: their models are in no step from here on.
list_wanted() {
  local step=$1 model last pair replica own=()
  WANTED=() PLANNED=() LATE=()
  for model in "${MODELS[@]}"; do
    if [[ -n ${FINISHED[$model]-} ]]; then continue; fi
    last=${LAST_STEP[$model]--1}
    for pair in ${RUNS["$((last < step ? last : step)) $model"]-}; do
      replica=${pair%@*}
      PLANNED[$replica]=${pair#*@}
      if ((last < step)); then
        LATE[$replica]=1
        WANTED+=("$replica")
      else
        own+=("$replica")
      fi
    done
  done
  WANTED+=("${own[@]}")
}

all_up() {
  local replica
  for replica in "${WANTED[@]}"; do
    [[ -n ${UP[$replica]-} ]] || return 1
  done
}

# On several hosts, the first to see it says so to the others.
has_ended() {
  local step=$1 host folder=$RUN/steps/$1
  REASON='another host saw its end'
  if [[ ! -e $folder/ended ]]; then
    for host in "${HOSTS[@]}"; do
      [[ -e $folder/host-$host ]] || return 1
    done
    one_finished "$folder" || none_left "$step" || reached_until "$step" || all_idle "$step" || return 1
    : >"$folder/ended"
  fi
  say "step $((step + 1)) ends: $REASON"
}

one_finished() {
  local model file line
  local -A before=()
  for file in "$1"/host-*; do
    while read -r line; do
      if [[ -n $line ]]; then before[$line]=1; fi
    done <"$file"
  done
  for model in "${MODELS[@]}"; do
    if [[ -n ${FINISHED[$model]-} && -z ${before[$model]-} ]]; then
      REASON="${NAME[$model]} is finished"
      return 0
    fi
  done
  return 1
}

none_left() {
  local model
  for model in ${STEP_MODELS[$1]}; do
    [[ -n ${FINISHED[$model]-} ]] || return 1
  done
  REASON='all of its models are finished'
}

reached_until() {
  local model=${UNTIL_MODEL[$1]-} count=''
  [[ -n $model && -e $RUN/progress/$model ]] || return 1
  read -r count <"$RUN/progress/$model" || true
  [[ $count =~ ^[0-9]{1,15}$ ]] && ((10#$count >= ${UNTIL_REQUESTS[$1]})) || return 1
  REASON="${NAME[$model]} has finished $count requests"
}

# Every model that runs waits for one that does not.
all_idle() {
  local model last idle=''
  for model in "${MODELS[@]}"; do
    last=${LAST_STEP[$model]--1}
    if [[ -n ${FINISHED[$model]-} || $last == -1 ]]; then continue; fi
    if ((last < $1)) || [[ " ${STEP_MODELS[$1]} " == *" $model "* ]]; then
      [[ -e $RUN/idle/$model ]] || return 1
      idle=1
    fi
  done
  [[ -n $idle ]] || return 1
  REASON='its models have nothing to do'
}

tick() {
  sleep "$POLL_S"
  look
}

# Takes notice of what is finished, of servers that are up, and of those that failed.
look() {
  local model replica unneeded=()
  for model in "${MODELS[@]}"; do
    if [[ -z ${FINISHED[$model]-} && -e $RUN/done/$model ]]; then
      FINISHED[$model]=1
      say "${NAME[$model]} is finished"
    fi
  done
  for replica in "${!PID[@]}"; do
    if [[ -n ${FINISHED[${MODEL_OF[$replica]}]-} ]]; then
      unneeded+=("$replica")
      release "$replica"
    fi
  done
  stop "${unneeded[@]}"
  for replica in "${!PID[@]}"; do
    look_at_server "$replica"
  done
}

# ---- GPUs ----

# Gives GPUs to what is wanted and does not run, stops what has to give way, starts it. WAITING: what found none.
place() {
  local step=$1 replica
  local -A leaves=() taken=()
  WAITING=()
  for replica in "${WANTED[@]}"; do
    if [[ -z ${PID[$replica]-} ]]; then WAITING+=("$replica"); fi
  done
  give_gpus changing unwanted
  if ((${#WAITING[@]})) && none_late; then
    send_home
    give_gpus unwanted
  fi
  for replica in "${!PID[@]}"; do
    if is_replaced "$replica"; then leave "$replica"; fi
  done
  stop "${!leaves[@]}"
  for replica in "${WANTED[@]}"; do
    if [[ -n ${taken[$replica]-} ]]; then start "$replica" "${taken[$replica]}"; fi
  done
}

# The planned GPUs if they are free, else others; with every word more has to give way for it (see gives_way).
give_gpus() {
  local give how replica gpu holder still
  for give in "$@"; do
    for how in planned others; do
      still=()
      for replica in "${WAITING[@]}"; do
        if ! "find_$how" "$replica" "$give"; then
          still+=("$replica")
          continue
        fi
        for gpu in ${FOUND//,/ }; do
          holder=${HOLDER[$gpu]-}
          if [[ -n $holder ]]; then leave "$holder"; fi
        done
        for gpu in ${FOUND//,/ }; do HOLDER[$gpu]=$replica; done
        taken[$replica]=$FOUND
      done
      WAITING=("${still[@]}")
    done
  done
}

find_planned() {
  local gpu
  FOUND=${PLANNED[$1]}
  for gpu in ${FOUND//,/ }; do
    is_open "$gpu" "$2" || return 1
  done
}

# On the island with the fewest open GPUs that are enough, else, where that is allowed, on whole islands.
find_others() {
  local size=${SIZE[$1]} give=$2 island gpu open best='' count=0 whole=()
  if [[ $give == changing ]]; then give=nobody; fi
  for island in "${ISLANDS[@]}"; do
    open=()
    for gpu in $island; do
      if is_open "$gpu" "$give"; then open+=("$gpu"); fi
    done
    if ((${#open[@]} >= size)) && { [[ -z $best ]] || ((${#open[@]} < count)); }; then
      best=${open[*]:0:size} count=${#open[@]}
    fi
    if [[ ${open[*]} == "$island" ]] && ((${#whole[@]} + ${#open[@]} <= size)); then whole+=("${open[@]}"); fi
  done
  if [[ -z $best && -n $SPANS_ISLANDS ]] && ((${#whole[@]} == size)); then best=${whole[*]}; fi
  FOUND=${best// /,}
  [[ -n $FOUND ]]
}

is_open() {
  local holder=${HOLDER[$1]-}
  [[ -z $holder ]] || gives_way "$holder" "$2"
}

# nobody; changing: replicas that the step replaces by others of their model; unwanted: all that it does not want.
gives_way() {
  [[ $2 != nobody && -z ${PLANNED[$1]-} ]] || return 1
  [[ $2 == unwanted || " ${STEP_MODELS[$step]-} " == *" ${MODEL_OF[$1]} "* ]]
}

none_late() {
  local replica
  for replica in "${!LATE[@]}"; do
    if [[ -n ${PID[$replica]-} ]]; then return 1; fi
  done
}

# Replicas of the step on GPUs that are planned for others of it go back to their own.
send_home() {
  local replica gpu
  local -A owner=()
  for replica in "${WANTED[@]}"; do
    for gpu in ${PLANNED[$replica]//,/ }; do owner[$gpu]=$replica; done
  done
  for replica in "${WANTED[@]}"; do
    for gpu in $(held_by "$replica"); do
      if [[ -n ${owner[$gpu]-} && ${owner[$gpu]} != "$replica" ]]; then
        leave "$replica"
        WAITING+=("$replica")
        break
      fi
    done
  done
}

held_by() {
  local gpu
  for gpu in "${!HOLDER[@]}"; do
    if [[ ${HOLDER[$gpu]} == "$1" ]]; then echo "$gpu"; fi
  done
}

# A running replica that is not wanted while all others of its model have GPUs.
is_replaced() {
  local replica
  if [[ -n ${leaves[$1]-} ]] || ! gives_way "$1" changing; then return 1; fi
  for replica in "${WAITING[@]}"; do
    if [[ ${MODEL_OF[$replica]} == "${MODEL_OF[$1]}" ]]; then return 1; fi
  done
}

leave() {
  release "$1"
  unset "taken[$1]"
  if [[ -n ${PID[$1]-} ]]; then leaves[$1]=1; fi
}

release() {
  local gpu
  for gpu in $(held_by "$1"); do unset "HOLDER[$gpu]"; done
}

# ---- servers ----

start() {
  local replica=$1 gpus=$2 limit_s=${START_UP_LIMIT_S:-${LIMIT_S[$1]}}
  if listens "${PORT[$replica]}"; then
    die "port ${PORT[$replica]} is taken by a program that is not of this run: end it, or plan ports with --port"
  fi
  say "starting $replica on GPU $gpus (at most $limit_s s, log: $RUN/logs/$replica.log)"
  CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=$gpus setsid \
    "${WORDS[@]:${FIRST_WORD[$replica]}:${WORD_COUNT[$replica]}}" </dev/null >>"$RUN/logs/$replica.log" 2>&1 &
  PID[$replica]=$!
  DEADLINE[$replica]=$((SECONDS + limit_s))
}

# Replicas are taken from the endpoints, get SIGTERM all at once, and SIGKILL after the grace period.
stop() {
  local replica pid until_s=$((SECONDS + GRACE_S)) gone_s
  if ((!$#)); then return; fi
  for replica in "$@"; do
    unset "UP[$replica]"
  done
  write_endpoints
  for replica in "$@"; do
    say "stopping $replica"
    kill -TERM "${PID[$replica]}" 2>/dev/null || true
  done
  for replica in "$@"; do
    pid=${PID[$replica]}
    while kill -0 "$pid" 2>/dev/null && ((SECONDS < until_s)); do sleep 0.1; done
    if kill -0 "$pid" 2>/dev/null; then say "$replica does not stop: killing it"; fi
    kill -KILL -- "-$pid" 2>/dev/null || true # its session: also what it has left behind
    wait "$pid" 2>/dev/null || true
    # What dies holds its GPU until it is gone. Where nobody reaps the dead, the wait ends as well.
    gone_s=$((SECONDS + GONE_S))
    while kill -0 -- "-$pid" 2>/dev/null && ((SECONDS < gone_s)); do sleep 0.1; done
    unset "PID[$replica]" "DEADLINE[$replica]"
  done
}

look_at_server() {
  local replica=$1 pid=${PID[$1]} status=0
  if ! kill -0 "$pid" 2>/dev/null; then
    wait "$pid" || status=$?
    fail "$replica ended by itself with status $status"
  fi
  if [[ -n ${UP[$replica]-} ]]; then return; fi
  if is_healthy "${PORT[$replica]}"; then
    UP[$replica]=1
    write_endpoints
    say "$replica is up at http://$ADDRESS:${PORT[$replica]}"
  elif ((SECONDS >= DEADLINE[$replica])); then
    fail "$replica is not up in time (--start-up-limit gives it longer): \
http://127.0.0.1:${PORT[$replica]}/health does not answer 200"
  fi
}

fail() {
  local log=$RUN/logs/$replica.log
  say "the last lines of $log:"
  tail -n 10 -- "$log" >&2 || true
  die "$1; its log is $log"
}

is_healthy() {
  local answer
  answer=$(status_line "$1" 2>/dev/null) || true
  [[ $answer == HTTP/1.[01]" 200"* ]]
}

status_line() {
  local line=''
  exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
  printf 'GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
  IFS= read -r -t 5 line <&3
  printf '%s' "$line"
}

listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

write_endpoints() {
  local model replica urls separator='{'
  {
    for model in "${MODELS[@]}"; do
      urls=''
      for replica in "${REPLICAS[@]}"; do
        if [[ ${MODEL_OF[$replica]} == "$model" && -n ${UP[$replica]-} ]]; then
          urls+="${urls:+, }\"http://$ADDRESS:${PORT[$replica]}\""
        fi
      done
      printf '%s\n  %s: [%s]' "$separator" "${JSON_NAME[$model]}" "$urls"
      separator=,
    done
    printf '\n}\n'
  } | put "$ENDPOINTS"
}

# ---- the table ----

PLAN='' HOST='' STEPS=0 SPANS_ISLANDS=''
HOSTS=() ISLANDS=() MODELS=() REPLICAS=() WORDS=() WANTED=() WAITING=()
declare -A NAME=() JSON_NAME=() REQUESTS=() LAST_STEP=()
declare -A MODEL_OF=() SIZE=() PORT=() LIMIT_S=() FIRST_WORD=() WORD_COUNT=()
declare -A SENTENCE=() STEP_MODELS=() RUNS=() UNTIL_MODEL=() UNTIL_REQUESTS=()
declare -A FINISHED=() PLANNED=() LATE=() PID=() UP=() DEADLINE=() HOLDER=()

plan_is() { PLAN=$1; }
host_is() { HOST=$1 HOSTS=("${@:2}"); }
island() { ISLANDS+=("$*"); }
span_islands() { SPANS_ISLANDS=1; }

model() {
  MODELS+=("$1")
  NAME[$1]=$2 JSON_NAME[$1]=$3 REQUESTS[$1]=$4
}

replica() {
  REPLICAS+=("$1")
  MODEL_OF[$1]=$2 SIZE[$1]=$3 PORT[$1]=$4 LIMIT_S[$1]=$5
  FIRST_WORD[$1]=${#WORDS[@]} WORD_COUNT[$1]=$(($# - 5))
  WORDS+=("${@:6}")
}

step() {
  local model
  SENTENCE[$STEPS]=$1
  STEP_MODELS[$STEPS]=${*:2}
  for model in "${@:2}"; do LAST_STEP[$model]=$STEPS; done
  STEPS=$((STEPS + 1))
}

runs() { RUNS["$((STEPS - 1)) ${MODEL_OF[$1]}"]+=" $1@$2"; }

until_requests() {
  UNTIL_MODEL[$((STEPS - 1))]=$1
  UNTIL_REQUESTS[$((STEPS - 1))]=$2
}
