# fish completion for holdfast(1)

# The names in use, in the store that the line names.
function __holdfast_names
    set -l words (commandline -opc)
    set -l url
    for i in (seq 2 (count $words))
        if contains -- $words[$i] -u --url; and test $i -lt (count $words)
            set url -u $words[(math $i + 1)]
        end
    end
    holdfast $url ls --json 2>/dev/null | string match -rg '"name": "([^"\\\\]*)"'
end

function __holdfast_in
    __fish_seen_subcommand_from $argv
end

set -l verbs run elect once acquire renew release leader count barrier latch ls show wait break bench backends schema version help
complete -c holdfast -f
complete -c holdfast -n "not __fish_seen_subcommand_from $verbs" -a "$verbs"
complete -c holdfast -n "not __fish_seen_subcommand_from $verbs" -s u -l url -x -a local: -d 'the store'
complete -c holdfast -n "not __fish_seen_subcommand_from $verbs" -s V -l version -d 'show the version'
complete -c holdfast -s h -l help -d 'show help'
complete -c holdfast -n '__holdfast_in run elect once acquire leader barrier ls show wait break' -a '(__holdfast_names)'
complete -c holdfast -n '__holdfast_in help' -a "$verbs"

complete -c holdfast -n '__holdfast_in run elect once acquire' -s n -l try -d 'do not wait'
complete -c holdfast -n '__holdfast_in run elect once acquire barrier latch wait' -s w -l wait -x -d 'wait at most'
complete -c holdfast -n '__holdfast_in run elect once barrier' -s t -x -d 'how long the lock lasts without contact'
complete -c holdfast -n '__holdfast_in run elect once acquire renew barrier' -l ttl -x -d 'how long the lock lasts'
complete -c holdfast -n '__holdfast_in run acquire' -s s -l shared -d 'shared'
complete -c holdfast -n '__holdfast_in run' -s x -l exclusive -d 'exclusive'
complete -c holdfast -n '__holdfast_in run' -l permits -x -d 'K/N of a semaphore'
complete -c holdfast -n '__holdfast_in run' -l rate -x -d 'N/T: a limit instead of a lock'
complete -c holdfast -n '__holdfast_in run' -l also -x -a '(__holdfast_names)' -d 'hold this name too'
complete -c holdfast -n '__holdfast_in run' -l reenter -d 'run at once inside a run that holds NAME'
complete -c holdfast -n '__holdfast_in run' -l barge -d 'enter past the queue'
complete -c holdfast -n '__holdfast_in run' -l at-least -x -d 'keep the name for so long'
complete -c holdfast -n '__holdfast_in run once' -l at-most -x -d 'end the command by then'
complete -c holdfast -n '__holdfast_in run' -l on-lost -x -a 'term kill warn' -d 'what to do to the command'
complete -c holdfast -n '__holdfast_in elect' -l on-lost -x -a 'term kill' -d 'what to do to the command'
complete -c holdfast -n '__holdfast_in run elect once' -l grace -x -d 'from TERM to KILL'
complete -c holdfast -n '__holdfast_in run once acquire barrier' -l note -x -d 'why'
complete -c holdfast -n '__holdfast_in run elect once' -s E -l busy-exit -x -d 'exit status instead of 75'
complete -c holdfast -n '__holdfast_in run elect once' -s c -l command -x -d 'run by /bin/sh'
complete -c holdfast -n '__holdfast_in run elect once' -s q -l quiet -d 'say nothing'
complete -c holdfast -n '__holdfast_in run elect once' -s v -l verbose -d 'say more'
complete -c holdfast -n '__holdfast_in acquire renew leader ls show bench backends' -l json -d 'for programs'
complete -c holdfast -n '__holdfast_in elect' -l value -x -d 'what others see of the leader'
complete -c holdfast -n '__holdfast_in once' -l for -x -d 'how long its success counts'
complete -c holdfast -n '__holdfast_in once' -l forget -d 'it may be done again'
complete -c holdfast -n '__holdfast_in leader' -l follow -d 'print each change'
complete -c holdfast -n '__holdfast_in count latch' -l by -x -d 'by so much'
complete -c holdfast -n '__holdfast_in barrier' -l parties -x -d 'so many are to come'
complete -c holdfast -n '__holdfast_in latch' -l set -x -d 'open after N events'
complete -c holdfast -n '__holdfast_in latch' -l down -d 'count one'
complete -c holdfast -n '__holdfast_in latch' -l left -d 'how many are left'
complete -c holdfast -n '__holdfast_in latch' -l clear -d 'remove it'
complete -c holdfast -n '__holdfast_in ls' -l limit -x -d 'at most so many'
complete -c holdfast -n '__holdfast_in break' -l fence -x -d 'which holder'
complete -c holdfast -n '__holdfast_in break' -l id -x -d 'which ticket'
complete -c holdfast -n '__holdfast_in break' -l all -d 'all holders'
complete -c holdfast -n '__holdfast_in break' -l now -d 'admit the next at once'
complete -c holdfast -n '__holdfast_in break' -s y -l yes -d 'do not ask'
complete -c holdfast -n '__holdfast_in bench' -l time -x -d 'for each case'
