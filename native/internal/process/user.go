package process

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// identity is whom a process runs as; nil means the daemon's own user.
type identity struct {
	credential *syscall.Credential
	variables  map[string]string
}

// lookIdentity reads "name", "uid", "name:group" or "uid:gid" with the sandbox's own /etc/passwd and /etc/group.
func lookIdentity(text string) (*identity, error) {
	if text == "" {
		return nil, nil
	}
	name, group, hasGroup := strings.Cut(text, ":")
	found := &identity{credential: &syscall.Credential{}, variables: map[string]string{}}
	account, err := user.Lookup(name)
	if err != nil {
		account, err = user.LookupId(name)
	}
	if err == nil {
		found.describe(account)
	} else if uid, numberErr := strconv.ParseUint(name, 10, 32); numberErr == nil {
		// A number needs no entry in /etc/passwd.
		found.credential.Uid = uint32(uid)
	} else {
		return nil, &StartError{StartInvalid, fmt.Errorf("unknown user %q", name)}
	}
	if hasGroup {
		if err := found.setGroup(group); err != nil {
			return nil, err
		}
	}
	if int(found.credential.Uid) != os.Geteuid() && os.Geteuid() != 0 {
		return nil, &StartError{StartDenied, fmt.Errorf("cannot run as user %q: the daemon is not root", text)}
	}
	if os.Geteuid() != 0 {
		found.credential = nil
	}
	return found, nil
}

func (i *identity) describe(account *user.User) {
	uid, _ := strconv.ParseUint(account.Uid, 10, 32)
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	i.credential.Uid, i.credential.Gid = uint32(uid), uint32(gid)
	i.variables["HOME"], i.variables["USER"], i.variables["LOGNAME"] = account.HomeDir, account.Username, account.Username
	groups, err := account.GroupIds()
	if err != nil {
		return
	}
	for _, group := range groups {
		if number, err := strconv.ParseUint(group, 10, 32); err == nil {
			i.credential.Groups = append(i.credential.Groups, uint32(number))
		}
	}
}

func (i *identity) setGroup(text string) error {
	if group, err := user.LookupGroup(text); err == nil {
		text = group.Gid
	}
	gid, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return &StartError{StartInvalid, fmt.Errorf("unknown group %q", text)}
	}
	i.credential.Gid, i.credential.Groups = uint32(gid), []uint32{uint32(gid)}
	return nil
}
