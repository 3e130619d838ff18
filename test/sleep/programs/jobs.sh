# A shell with two background jobs and a file that is open and deleted; answers what it has to each line that it reads.
exec 3<> /w/deleted
rm /w/deleted
echo "first line" >&3
(while :; do echo tick >> /w/job.1; sleep 0.1; done) &
(while :; do echo tick >> /w/job.2; sleep 0.1; done) &
lines=1
while read -r word <&4; do
  echo "$word" >&3
  lines=$((lines + 1))
  echo "$$ $(jobs -rp | wc -l) $lines $(wc -l < /proc/$$/fd/3) $(tail -n 1 /proc/$$/fd/3) $(wc -l < /w/job.1) $(wc -l < /w/job.2)" >> /w/jobs.out
done 4<> /w/jobs.in
