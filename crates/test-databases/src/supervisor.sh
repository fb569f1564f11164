# Runs a database server for a test and ends it with the test, however the test ends: standard input is a pipe from the
# test, and at its end the server is killed and the directory removed.
#
# usage: sh -c "$SCRIPT" supervisor DIRECTORY SIGNAL COMMAND [ARGUMENT]…      SIGNAL asks the server to stop
# input: start [ARGUMENT] | stop | kill | state | fill | free, a line each; each is answered with a line when it is done
directory=$1 signal=$2
shift 2
pid=

end() {
    [ -n "$pid" ] || return
    # Those of a PostgreSQL that was killed serve their clients for a moment.
    children=
    [ "$1" != KILL ] || children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
    # shellcheck disable=SC2086 # several numbers
    kill -s "$1" "$pid" $children 2>/dev/null
    wait "$pid" 2>/dev/null
    for child in $children; do
        while [ -e "/proc/$child" ] && ! grep -q '^State:.Z' "/proc/$child/status" 2>/dev/null; do
            sleep 0.01
        done
    done
    pid=
}

# A test that is interrupted at the terminal ends itself; the pipe tells this script.
trap '' INT HUP
while read -r what argument; do
    case $what in
    start) "$@" ${argument:+"$argument"} >>"$directory/log" 2>&1 </dev/null & pid=$! ;;
    stop) end "$signal" ;;
    kill) end KILL ;;
    # The process and the state in PostgreSQL's file.
    state)
        file=$directory/data/postmaster.pid
        echo "state $(sed -n 1p "$file" 2>/dev/null) $(sed -n '$s/ *$//p' "$file" 2>/dev/null)"
        continue
        ;;
    fill) mountpoint -q "$directory/data" && cat /dev/zero >"$directory/data/ballast" 2>/dev/null ;;
    free) rm -f "$directory/data/ballast" ;;
    esac
    echo "$what ${pid:-0}"
done
end KILL
# The other processes of a killed PostgreSQL write for a moment.
for attempt in 1 2 3 4 5; do
    # A disk of its own.
    umount "$directory/data" 2>/dev/null
    rm -rf "$directory" 2>/dev/null && break
    sleep 1
done
