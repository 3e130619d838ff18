package main

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

type result = map[string]any

// mismatch is the first difference in words, or empty.
func mismatch(expected, actual any, path string) string {
	wanted, isMapping := expected.(map[string]any)
	if !isMapping {
		if expected == nil || reflect.DeepEqual(plain(expected), plain(actual)) {
			return ""
		}
		return fmt.Sprintf("%s is %q, not %q", path, fmt.Sprint(actual), fmt.Sprint(expected))
	}
	if part, asked := wanted["contains"]; asked {
		if contains(actual, fmt.Sprint(part)) {
			return ""
		}
		return fmt.Sprintf("%s is %q, without %q", path, fmt.Sprint(actual), part)
	}
	if pattern, asked := wanted["matches"]; asked {
		if regexp.MustCompile(pattern.(string)).MatchString(fmt.Sprint(actual)) {
			return ""
		}
		return fmt.Sprintf("%s %q !~ %q", path, fmt.Sprint(actual), pattern)
	}
	fields, _ := actual.(map[string]any)
	for key, value := range wanted {
		found, has := fields[key]
		if !has {
			return path + " has no " + key
		}
		if difference := mismatch(value, found, path+"."+key); difference != "" {
			return difference
		}
	}
	return ""
}

func contains(actual any, part string) bool {
	if list, isList := plain(actual).([]any); isList {
		return slices.Contains(list, any(part))
	}
	return strings.Contains(fmt.Sprint(actual), part)
}

// plain brings numbers and lists of different types into one form.
func plain(value any) any {
	switch v := value.(type) {
	case int64:
		return int(v)
	case []string:
		list := make([]any, len(v))
		for index, text := range v {
			list[index] = text
		}
		return list
	}
	return value
}

var reference = regexp.MustCompile(`\$\{([a-z-]+)(?:\.([A-Za-z]+))?\}`)

// substitute replaces ${name.field} in every text below a value.
func substitute(value any, kept map[string]result) any {
	switch v := value.(type) {
	case string:
		return reference.ReplaceAllStringFunc(v, func(text string) string {
			parts := reference.FindStringSubmatch(text)
			fields, known := kept[parts[1]]
			if !known {
				return text
			}
			return fmt.Sprint(fields[parts[2]])
		})
	case map[string]any:
		replaced := map[string]any{}
		for key, inner := range v {
			replaced[substitute(key, kept).(string)] = substitute(inner, kept)
		}
		return replaced
	case []any:
		replaced := make([]any, len(v))
		for index, inner := range v {
			replaced[index] = substitute(inner, kept)
		}
		return replaced
	}
	return value
}

// texts reads a text or a list of them.
func texts(value any) []string {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		list := make([]string, len(v))
		for index, inner := range v {
			list[index] = fmt.Sprint(inner)
		}
		return list
	}
	return nil
}

func text(s step, key string) string {
	value, has := s[key]
	if !has || value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func truth(s step, key string) bool { return s[key] == true }

func number(s step, key string) float64 {
	switch v := s[key].(type) {
	case int:
		return float64(v)
	case float64:
		return v
	}
	return 0
}

func textMap(s step, key string) map[string]string {
	fields, _ := s[key].(map[string]any)
	read := map[string]string{}
	for name, value := range fields {
		read[name] = fmt.Sprint(value)
	}
	return read
}
