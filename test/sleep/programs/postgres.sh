# Starts PostgreSQL and one session that inserts rows, of which each is acknowledged once it is committed.
set -e
chown nobody /w/pg
cat > /w/pg.sh <<'INNER'
set -e
export PATH=$(echo /tools/postgres/usr/lib/postgresql/*/bin):$PATH
export LD_LIBRARY_PATH=$(echo /tools/postgres/usr/lib/*-linux-gnu)
export PGHOST=/w/pg PGUSER=nobody PGDATABASE=postgres
case "$1" in
  serve)
    initdb --pgdata=/w/pg/data --data-checksums --encoding=UTF8 --locale=C --auth=trust > /w/pg/initdb.log 2>&1
    exec postgres -D /w/pg/data -k /w/pg -c listen_addresses= -c max_connections=10 -c shared_buffers=16MB > /w/pg/server.log 2>&1 ;;
  write)
    until psql -qc 'select 1' > /dev/null 2>&1; do sleep 0.1; done
    psql -qc 'create table rows (id serial primary key, body text); create extension amcheck'
    while :; do echo "insert into rows (body) values (repeat('x', 200)) returning id;"; sleep 0.03; done | exec psql -Atq > /w/pg/acknowledged ;;
  check)
    acknowledged=$(tail -n 1 /w/pg/acknowledged)
    broken=$(psql -Atqc "select count(*) from verify_heapam('rows')"; psql -Atqc "select bt_index_check('rows_pkey', true)")
    postmaster=$(head -n 1 /w/pg/data/postmaster.pid)
    psql -Atqc "select json_build_object('acknowledged', coalesce(nullif('$acknowledged', ''), '0')::int, 'top', max(id), 'missing', max(id) - count(*), 'broken', '$broken', 'postmaster', $postmaster, 'started', pg_postmaster_start_time()) from rows" ;;
esac
INNER
as_nobody="setpriv --reuid=nobody --regid=nogroup --clear-groups bash /w/pg.sh"
setsid $as_nobody serve < /dev/null > /dev/null 2>&1 &
setsid $as_nobody write < /dev/null > /w/pg-write.log 2>&1 &
